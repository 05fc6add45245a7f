"""Compare random ports, half of them with a fault: ``PYTHONPATH=tests python -m toy.random_ports 3000``.

In half of them names say the same on both sides and seldom the right thing. What became of a port is appended to a
file, and what stands there is not run again. Ends with status 1 where a right port was called wrong or a wrong one
right.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path

import padiff

from .announced import announced
from .generated import a_plan, apart, faulty, numbers, written

__all__ = ["Fate", "fate", "fates"]

_SAME = 1e-6
"""Up to here outputs and gradients of two whole models in float64 are the same."""


class Fate(StrEnum):
    """What padiff made of a port, as the judge of these tests sees it."""

    RIGHT = "right, and aligned"
    FOUND = "wrong, and found"
    HARMLESS = "changed, and computes the same, and aligned"
    DOUBTED = "changed, and computes the same, and called wrong"
    ALARM = "right, and called wrong"
    PASSED = "wrong, and called aligned"


def fates(seeds: Iterable[int]) -> dict[int, Fate]:
    """Return what became of the random port of each seed."""
    return {seed: fate(seed) for seed in seeds}


def fate(seed: int) -> Fate:
    """Return what became of the random port of a seed."""
    chance = random.Random(seed)
    plan, misnamed = a_plan(chance.choice), chance.random() < 0.5
    reference = written("rows", plan, chance.randrange(10**6), misnamed=misnamed)[0]
    wrong = chance.random() < 0.5
    if wrong:
        plan = faulty(plan, chance.randrange(len(plan.walk())), chance.randrange(10))
    candidate = written("columns", plan, chance.randrange(10**6), 1, misnamed=misnamed)[0]
    aligned = padiff.diff(reference, candidate, (numbers(),)).aligned
    same = apart(reference, candidate) <= _SAME
    if not wrong:
        return Fate.RIGHT if aligned and same else Fate.PASSED if aligned else Fate.ALARM
    if aligned:
        return Fate.HARMLESS if same else Fate.PASSED
    return Fate.DOUBTED if same else Fate.FOUND


def main() -> int:
    """Compare ports, and print what became of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ports", type=int, nargs="?", default=3000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--out", type=Path, default=Path("ports.jsonl"))
    asked = parser.parse_args()
    known = {}
    if asked.out.exists():
        known = {one["seed"]: Fate(one["fate"]) for one in map(json.loads, asked.out.read_text().splitlines())}
    with announced(), asked.out.open("a") as file:
        for seed in range(asked.first, asked.first + asked.ports):
            if seed not in known:
                known[seed] = fate(seed)
                print(json.dumps({"seed": seed, "fate": known[seed]}), file=file, flush=True)
    for found, count in sorted(Counter(known.values()).items()):
        print(f"{count:6} {found}")
    bad = [seed for seed, found in known.items() if found in (Fate.ALARM, Fate.PASSED)]
    print(f"seeds: {bad}" if bad else "none judged wrongly")
    return bool(bad)


if __name__ == "__main__":
    raise SystemExit(main())
