"""Compare models of PyTorch's libraries with other libraries' ports of them; and plant random slips.

``python benchmarks/libraries.py`` (``--library paddlenlp --models Bert T5 --eval``): each model in a small
configuration that both libraries are given, with random weights and no dropout. A line a model: what padiff says in its
first line.

``--mutants 25 --seed 1``: in each port that is aligned, as many random slips of the hand, one at a time, anywhere in
the source of the classes that it is made of (an operator, a number, an argument, a statement left out). The judge is
not padiff: the port itself, with and without the slip, on the same weights. A slip counts as wrong where outputs,
gradients or buffers are more than 1e-5 apart, and as none where these are less than 1e-6. It is placed elsewhere where
a source is neither a module of the class in which the slip is nor inside of one.
"""

from __future__ import annotations

import argparse
import random
import time
import warnings
from collections import Counter
from typing import Any

from library_ports import LIBRARIES, Pair, modules, names, pair
from machine import machine
from slips import apart, mutants, seen, state

WRONG, NONE = 1e-5, 1e-6
VERSIONS = {
    "paddlenlp": ("transformers", "paddlepaddle", "paddlenlp"),
    "paddle.vision": ("torchvision", "paddlepaddle"),
    "paddleclas": ("timm", "paddlepaddle", "paddleclas"),
    "mindcv": ("timm", "mindspore", "mindcv"),
    "mindone": ("transformers", "mindspore", "mindone"),
    "written": ("paddlepaddle",),
}


def elsewhere(report: Any, port: Any, owner: str) -> set[str]:
    """Return the sources of a report that lie neither in modules of a class nor below them."""
    classes = {path: type(module).__name__ for path, module in modules(port)}
    found = set()
    for source in report.sources:
        parts = (source.candidate.path or "").split(".")
        above = [".".join(parts[:length]) for length in range(len(parts) + 1)]
        if not any(classes.get(path) == owner for path in above):
            found.add(above[-1])
    return found


def slip(name: str, made: Pair, right: Any, count: int, seed: int, *, told: bool) -> Counter[str]:
    """Plant slips in one port; print those that padiff misjudges, or all; return how many were judged how."""
    import padiff

    padiff.transfer(made.reference, right)
    values, found = state(right), Counter[str]()
    truth = seen(right, values, made.inputs)
    assert truth is not None
    used = {type(one).__name__ for _, one in modules(right) if type(one).__module__ == made.module.__name__}
    for where, written in mutants(made.module, used, random.Random(seed)):
        if sum(found.values()) >= count:
            break
        try:
            model = made.build(written)
            seen_then = seen(model, values, made.inputs)
        except Exception:  # it does not run: everybody sees that
            continue
        if seen_then is None:
            continue
        error = apart(truth, seen_then)
        report = padiff.diff(made.reference, model, made.inputs)
        aligned, line = report.aligned, str(report).partition(" (")[0]
        how = "wrong" if error > WRONG else "right" if error < NONE else "between"
        amiss = elsewhere(report, model, where.partition(":")[0]) if how == "wrong" else set()
        verdict = "aligned" if aligned else f"not aligned{', placed elsewhere' if amiss else ''}"
        found[f"{how}, called {verdict}"] += 1
        if amiss or told or (how, aligned) in (("wrong", True), ("right", False)):
            said = f"; elsewhere: {', '.join(sorted(amiss)[:4])}" if amiss else ""
            print(f"  {name} {where}: {error:.2g} apart; {line}{said}", flush=True)
    return found


def main() -> None:
    """Print a line for each model, or a table of slips."""
    import torch  # noqa: F401  before the libraries on it

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", choices=LIBRARIES, default=LIBRARIES[0])
    parser.add_argument("--models", nargs="+", help="some of the library's models; else all")
    parser.add_argument("--eval", action="store_true", help="in evaluation mode")
    parser.add_argument("--mutants", type=int, default=0, help="random slips in each port that is aligned")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--verbose", action="store_true", help="print all slips, not those alone that are misjudged")
    asked = parser.parse_args()
    warnings.filterwarnings("ignore")
    if asked.library in ("mindcv", "mindone"):
        import mindspore  # noqa: F401  before Paddle
    import padiff

    print(machine("torch", *VERSIONS[asked.library]))
    total = Counter[str]()
    for name in asked.models or names(asked.library):
        start = time.perf_counter()
        try:
            made = pair(asked.library, name, train=not asked.eval)
            port = made.build(made.module)
            report = padiff.diff(made.reference, port, made.inputs)
        except Exception as error:  # a port that does not run is told, and the others go on
            print(f"{name}: {type(error).__name__}: {str(error).splitlines()[0]}", flush=True)
            continue
        print(f"{name}: {str(report).splitlines()[0]}, {time.perf_counter() - start:.1f} s", flush=True)
        if asked.mutants and report.aligned:
            total += slip(name, made, port, asked.mutants, asked.seed, told=asked.verbose)
    for how, count in sorted(total.items()):
        print(f"{count:5d} {how}")


if __name__ == "__main__":
    main()
