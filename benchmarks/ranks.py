"""Measure what merging and comparing the runs of many ranks costs: time and memory by ranks, and by bytes.

Run ``python benchmarks/ranks.py`` (``--ranks 16 64 256 1024``; ``--values tensors sketch``; ``--megabytes`` that each
rank holds; ``--dask`` on a local cluster of so many workers; ``--json``).

The jobs are synthetic, made of arrays: 8 ranks hold the shards of a layer (`tp`), the others parts of the batch (`dp`).
Each rank's folder holds a manifest of its own; records and values are the first rank's, by hard links, so that what is
described need not be stored: the bytes of each rank are opened, checked, merged and compared all the same. The
candidate's values differ by rounding. Each of the layers has a weight, which is split, and takes and gives a part of
the batch, which 8 ranks hold alike.

Each figure is of a process of its own that imports no framework: seconds of the CPU behind the imports, of all threads
(of a cluster the clock tells), and the peak RSS. With sketches a value takes 604 bytes, whatever it describes: there
``--megabytes`` is what the sketches are said to be of.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from machine import machine

TP, LAYERS = 8, 4
VALUES = 2 * LAYERS + 1
"""Values of a rank: the weights, what goes in, and what each layer gives."""
SKETCH = 151
"""Numbers of a sketch."""


def make(folder: str, ranks: str, megabytes: str, values: str, moved: str) -> dict[str, float]:
    """Write a job's run."""
    import attrs
    import numpy as np

    from padiff.adapter import Placement, Ranks
    from padiff.kinds import Part, Unit
    from padiff.trace import (
        Call,
        Description,
        Kept,
        Leaf,
        ModuleDescription,
        ModuleRecord,
        ParameterRecord,
        RunWriter,
        Summary,
        Trace,
        ValueStore,
        rank_folder,
    )

    count, tp = int(ranks), min(TP, int(ranks))
    elements = max(int(float(megabytes) * 1e6 / 4 / VALUES), 1024) // 1024
    rng = np.random.default_rng(0)
    paths = [f"layers.{number}" for number in range(LAYERS)]

    held = {f"{path}.weight": (1024, elements) for path in paths}
    passed = [(elements, 1024)] * (LAYERS + 1)

    def drawn(*shape: int) -> Any:
        noise = 1 + float(moved) * np.random.default_rng(7).standard_normal(shape).astype(np.float32)
        return rng.standard_normal(shape, dtype=np.float32) * noise

    def kept(made: Trace, shape: tuple[int, int], parts: int) -> int:
        """Keep a value, or a sketch of one: as random, and as long, as that of such a value is."""
        if values == "tensors":
            return made.store.put(drawn(*shape))
        norm = float(shape[0] * shape[1]) ** 0.5
        found = drawn(SKETCH) * np.float32(norm / SKETCH**0.5)
        whole = (shape[0] * parts, shape[1]) if parts > 1 else None
        return made.summarized(Summary("float32", shape, norm=norm, nans=0, infinities=0, sketch=found, whole=whole))

    def module(path: str, kind: str | None = None) -> ModuleRecord:
        return ModuleRecord(path, f"made.{kind or 'Model'}", kind, definition=("made.py", 1))

    records = {path: ParameterRecord(path, (path,), "float32", shape) for path, shape in held.items()}
    modules = {"": ModuleDescription(module(""), {})}
    for path in paths:
        modules[path] = ModuleDescription(module(path, "linear"), {}, {"": Unit("linear", {"weight": Part("weight")})})

    def about(rank: int) -> Description:
        groups = {"tp": tuple(range(rank // tp * tp, rank // tp * tp + tp)), "dp": tuple(range(rank % tp, count, tp))}
        groups = {name: group for name, group in groups.items() if len(group) > 1}
        both = {"tp": Placement("shard", 0), "dp": Placement()}
        spread = {name: how for name, how in both.items() if name in groups}
        given = {name: how for name, how in {"tp": Placement(), "dp": Placement("shard", 0)}.items() if name in groups}
        known = Ranks(rank, count, groups, dict.fromkeys(records, spread), dict.fromkeys(paths, given))
        return Description("made", "Model", frozenset(), "cpu", False, {}, modules, records, known)

    def trace(rank: int) -> Trace:
        made = Trace(ValueStore())
        root = Call(0, module(""), 0, None, False)
        leaves = [Leaf("x", "float32", shape, number + 1) for number, shape in enumerate(passed)]
        made.calls = [root]
        root.inputs, root.outputs = leaves[:1], [attrs.evolve(leaves[-1], path="")]
        for number, (path, (taken, gave)) in enumerate(zip(paths, itertools.pairwise(leaves), strict=True)):
            call = Call(number + 1, module(path, "linear"), 0, root, False)
            call.inputs, call.outputs = [taken], [attrs.evolve(gave, path="")]
            root.children.append(call)
            made.calls.append(call)
        for leaf in leaves:
            made.values[leaf.token] = kept(made, leaf.shape, count // tp)
        made.parameters = records
        made.weights = {path: kept(made, shape, tp) for path, shape in held.items()}
        return made

    first = Path(rank_folder(folder, 0))
    how: Kept = "sketch" if values == "sketch" else "tensors"
    RunWriter(first, about(0), how).finish(0, trace(0))
    for rank in range(1, count):
        home = Path(rank_folder(folder, rank))
        RunWriter(home, about(rank), how)
        for file in first.iterdir():
            if file.name != "manifest.json":
                os.link(file, home / file.name)
    return {"described": count * 4 * sum(rows * columns for rows, columns in [*held.values(), *passed])}


def compare(reference: str, candidate: str, workers: str) -> dict[str, Any]:
    """Compare two runs; return what it took."""
    import padiff

    before = time.process_time()
    start = time.perf_counter()
    if int(workers):
        import distributed

        cluster = distributed.LocalCluster(n_workers=int(workers), threads_per_worker=1, dashboard_address=None)
        client = distributed.Client(cluster)
        start = time.perf_counter()
        report = padiff.compare(reference, candidate, executor=client.get_executor())
        wall = time.perf_counter() - start
        client.close()
        cluster.close()
    else:
        report = padiff.compare(reference, candidate)
        wall = time.perf_counter() - start
    return {
        "cpu_seconds": time.process_time() - before,
        "wall_seconds": wall,
        "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6,
        "aligned": report.aligned,
        "missing": 0 if report.coverage is None else len(report.coverage.missing),
    }


CHILDREN = {"make": make, "compare": compare}


def child(*arguments: str) -> Any:
    """Run this file in a fresh process; return what it prints last, as JSON."""
    done = subprocess.run(
        [sys.executable, os.path.abspath(__file__), "--child", *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{' '.join(arguments)} failed:\n{done.stderr[-4000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def main() -> int:
    """Print the figures."""
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(CHILDREN[sys.argv[2]](*sys.argv[3:])))
        return 0
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[16, 64, 256, 1024])
    parser.add_argument("--megabytes", type=float, default=4.0, help="that each rank holds (default 4)")
    parser.add_argument("--values", nargs="+", default=["tensors", "sketch"], choices=["tensors", "sketch"])
    parser.add_argument("--dask", type=int, default=0, metavar="N", help="compare on a local cluster of N workers")
    parser.add_argument("--folder", help="where to write (default: the system's temporary folder)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    found = []
    for values, ranks in itertools.product(options.values, options.ranks):
        with tempfile.TemporaryDirectory(dir=options.folder, prefix="padiff-ranks-") as folder:
            a, b = f"{folder}/a", f"{folder}/b"
            made = child("make", a, str(ranks), str(options.megabytes), values, "0")
            child("make", b, str(ranks), str(options.megabytes), values, "1e-7")
            one = {"values": values, "ranks": ranks, "gigabytes": 2 * made["described"] / 1e9}
            one |= child("compare", a, b, str(options.dask))
        found.append(one)
        if not options.json:
            print(
                f"{values:8}{ranks:6} ranks  {one['gigabytes']:9.3f} GB  {one['cpu_seconds']:8.2f} CPU s  "
                f"{one['wall_seconds']:8.2f} s  {one['rss_mb']:7.0f} MB  "
                f"{1000 * one['cpu_seconds'] / ranks:6.1f} ms a rank  "
                f"{'aligned' if one['aligned'] else 'not aligned'}, {one['missing']} not compared",
                flush=True,
            )
    where = machine("numpy")
    print(json.dumps({"machine": where, "figures": found}, indent=2) if options.json else where)
    return 0


if __name__ == "__main__":
    sys.exit(main())
