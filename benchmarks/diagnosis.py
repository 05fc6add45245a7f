"""Plant bugs inside rewrites of many architectures, and count what a diff says: the scoreboard.

``tests/diagnosis`` holds what is drawn from: architectures written once for all frameworks, rewrites that change
nothing, classes of bugs, random mutations, random models. A case follows from its name. The judge is neither padiff nor
a tolerance of it: both models as wholes, each run freely in float64, their outputs and gradients.

Run ``python benchmarks/diagnosis.py --pairs rows-columns --kinds clean bug --count 100``. Outcomes are appended to a
file, and what stands there is not run again; ``--table`` prints what it holds, ``--case NAME`` runs one and shows the
report. ``rows`` and ``columns`` are the dialects of the toy framework, which needs a tenth of a second for a case.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
from pathlib import Path

import attrs

os.environ.setdefault("OMP_NUM_THREADS", "1")
TESTS = Path(__file__).parents[1] / "tests"
sys.path[:0] = [str(TESTS / "toy" / "site"), str(TESTS)]

KINDS = ("clean", "bug", "several", "mutant")


def main() -> int:
    """Run cases, or print what came of them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pairs", nargs="+", default=["rows-columns"], help="reference-candidate")
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS)
    parser.add_argument("--dtypes", nargs="+", default=["float32"], choices=["float32", "bfloat16", "float16"])
    parser.add_argument("--count", type=int, default=100, help="cases of each pair, kind and dtype")
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--architecture", help="one of the table, or random; else drawn")
    parser.add_argument("--rules", action="store_true", help="ask classic rules, too")
    parser.add_argument("--out", type=Path, default=Path("diagnosis.jsonl"))
    parser.add_argument("--table", action="store_true", help="print what the file holds, and run nothing")
    parser.add_argument("--case", help="run one case by its name")
    options = parser.parse_args()
    if any("mindspore" in pair for pair in options.pairs) or "mindspore" in (options.case or ""):
        import mindspore  # noqa: F401  # before Paddle: both bring a library of one name

    from diagnosis.cases import Case, Outcome, drawn, named, ran
    from diagnosis.scores import table

    if options.case:
        import padiff

        made = drawn(named(options.case))
        if made is None:
            print("this case does not run")
            return 2
        print(made.sources[1].text())
        print(f"{made.architecture}, {made.rewrites}, planted {[(bug.name, bug.paths) for bug in made.bugs]}")
        print(padiff.diff(made.reference, made.candidate, made.arrays))
        return 0
    known = {}
    if options.out.exists():
        known = {one["name"]: one for one in map(json.loads, options.out.read_text().splitlines())}
    if options.table:
        print(table(Outcome(**one) for one in known.values()))
        return 0
    cases = [
        Case(kind, tuple(pair.split("-")), seed, dtype, options.architecture)
        for seed in range(options.start, options.start + options.count)
        for pair in options.pairs
        for kind in options.kinds
        for dtype in options.dtypes
    ]
    random.Random(0).shuffle(cases)  # so that a run that is cut off is a fair sample
    with options.out.open("a") as file:
        for case in cases:
            if case.name not in known:
                print(json.dumps(attrs.asdict(ran(case, rules=options.rules))), file=file, flush=True)
    print(table(Outcome(**json.loads(line)) for line in options.out.read_text().splitlines()))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
