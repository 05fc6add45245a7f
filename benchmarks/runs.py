"""Measure what comparing two recorded runs costs.

Run ``python benchmarks/runs.py`` (``compare``, ``large`` or ``all``; ``--json``). It wants 15 GB of disk (``--folder``
says where). The runs are of the model of `store.py`, with its values.

*compare*: ``padiff.compare`` on two directories of one step, in a process that imports no framework, by a thread for
each core: GB of values of both by CPU second (imports and records included). *Equal* is a run with itself, *rounding*
is a run of weights that differ by 1e-6.

*large*: the same on runs of many steps which hold 25 GB each. Their disk would be 50 GB: all steps but the first refer
to the values of the second, which are read and compared anew for each step.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from machine import machine
from store import child, peak_mb, recorded

AIMS = {"gb_per_cpu_second": 3.0, "rss_mb": 1000.0}
MSPROBE = {"gb_per_cpu_second": 0.096}


def compare(reference: str, candidate: str) -> dict[str, Any]:
    """Compare two runs; return what it took."""
    import padiff
    from padiff.trace import open_run

    seconds = time.process_time()
    start = time.perf_counter()
    report = padiff.compare(reference, candidate)
    taken = time.process_time()
    wall = time.perf_counter() - start
    size = 0
    for path in (reference, candidate):
        run = open_run(path)
        for step in run.steps:
            trace = run.trace(step)
            size += sum(trace.store.lent(key).bytes for key in range(len(trace.store.places)))
    return {
        "gigabytes": size / 1e9,
        "cpu_seconds": taken,
        "import_seconds": seconds,
        "wall_seconds": wall,
        "gb_per_cpu_second": size / 1e9 / taken,
        "rss_mb": peak_mb(),
        "aligned": report.aligned,
        "steps": len(report.recorded.steps),
    }


def repeat_step(folder: Path, gigabytes: float) -> None:
    """Let a run of two steps hold so much: further steps are the second one, under other numbers."""
    second = folder / "step-00000001.json"
    shards = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    for number in range(2, 2 + int(gigabytes / (shards / 2 / 1e9))):
        shutil.copy(second, folder / f"step-{number:08d}.json")


CHILDREN: dict[str, Callable[..., Any]] = {
    "compare": compare,
    "make": lambda folder, steps, disturbed: recorded(Path(folder), int(steps), float(disturbed), values="tensors"),
}


def measure(what: str, folder: Path) -> dict[str, Any]:
    """Return the figures of one part."""
    steps = "1" if what == "compare" else "2"
    ours, theirs = folder / "a", folder / "b"
    for run, disturbed in ((ours, "0"), (theirs, "1e-6")):
        child(__file__, "make", str(run), steps, disturbed)
        if what == "large":
            repeat_step(run, 25.0)
    found = {"rounding": child(__file__, "compare", str(ours), str(theirs))}
    if what == "compare":
        found["equal"] = child(__file__, "compare", str(ours), str(ours))
    return found


def shown(what: str, figures: dict[str, Any]) -> str:
    """Return the figures of one part as text."""
    return "\n".join(
        f"{what}, {name}: {one['gigabytes']:.1f} GB in {one['steps']} steps, {one['cpu_seconds']:.2f} CPU s "
        f"({one['import_seconds']:.2f} of them imports), {one['wall_seconds']:.1f} s: "
        f"{one['gb_per_cpu_second']:.2f} GB per CPU s (aim {AIMS['gb_per_cpu_second']}), "
        f"RSS {one['rss_mb']:.0f} MB (aim {AIMS['rss_mb']:.0f}), {'aligned' if one['aligned'] else 'not aligned'}"
        for name, one in figures.items()
    )


def main() -> int:
    """Print the figures."""
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(CHILDREN[sys.argv[2]](*sys.argv[3:])))
        return 0
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", nargs="?", default="all", choices=["compare", "large", "all"], help="(default all)")
    parser.add_argument("--folder", help="where to write (default: the system's temporary folder)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    figures = {}
    for what in ("compare", "large") if options.what == "all" else (options.what,):
        with tempfile.TemporaryDirectory(dir=options.folder, prefix="padiff-runs-") as folder:
            figures[what] = measure(what, Path(folder))
        if not options.json:
            print(shown(what, figures[what]) + "\n", flush=True)
    where = machine("numpy", "torch")
    if options.json:
        print(json.dumps({"machine": where, "figures": figures, "aims": AIMS, "msprobe": MSPROBE}, indent=2))
        return 0
    print(", ".join(f"{key} {value}" for key, value in where.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
