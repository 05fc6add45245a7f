"""Compare random ports, half of them with a fault: ``PYTHONPATH=tests python -m toy.random_ports 3000``.

In half of them names say the same on both sides and seldom the right thing. Ends with status 1 where a right port was
called wrong, a wrong one right, or where a diff raised.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Iterable
from enum import StrEnum

import padiff

from .announced import announced
from .generated import a_plan, apart, faulty, numbers, written

__all__ = ["Fate", "fates"]


class Fate(StrEnum):
    """What padiff made of a port, as the judge of these tests sees it."""

    RIGHT = "right, and aligned"
    FOUND = "wrong, and found"
    HARMLESS = "changed, and computes the same"
    ALARM = "right, and called wrong"
    PASSED = "wrong, and called aligned"


def fates(seeds: Iterable[int]) -> dict[int, Fate]:
    """Return what became of the random port of each seed."""
    return {seed: _fate(random.Random(seed)) for seed in seeds}


def _fate(chance: random.Random) -> Fate:
    plan, misnamed = a_plan(chance.choice), chance.random() < 0.5
    reference = written("rows", plan, chance.randrange(10**6), misnamed=misnamed)[0]
    wrong = chance.random() < 0.5
    if wrong:
        plan = faulty(plan, chance.randrange(len(plan.walk())), chance.randrange(10))
    candidate = written("columns", plan, chance.randrange(10**6), 1, misnamed=misnamed)[0]
    aligned = padiff.diff(reference, candidate, (numbers(),)).aligned
    if aligned and apart(reference, candidate) > 1e-6:
        return Fate.PASSED
    if wrong:
        return Fate.HARMLESS if aligned else Fate.FOUND
    return Fate.RIGHT if aligned else Fate.ALARM


def main() -> int:
    """Compare ports, and print what became of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ports", type=int, nargs="?", default=3000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    asked = parser.parse_args()
    with announced():
        found = fates(range(asked.first, asked.first + asked.ports))
    for fate, count in sorted(Counter(found.values()).items()):
        print(f"{count:6} {fate}")
    bad = [seed for seed, fate in found.items() if fate in (Fate.ALARM, Fate.PASSED)]
    print(f"seeds: {bad}" if bad else "none judged wrongly")
    return bool(bad)


if __name__ == "__main__":
    raise SystemExit(main())
