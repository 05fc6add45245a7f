"""Measure what it costs to run the models of a ``padiff.diff`` in processes of their own.

Run ``python benchmarks/isolation.py`` (``resnet18``, ``resnet50`` or ``all``; ``--json`` for a machine, ``--repeats``).

One process builds a pair of torchvision's and paddle.vision's own models, and starts a worker for each of the same
two. After a warm-up the three ways take turns: both models in this process, the candidate in its worker, both in
their workers. Wall and CPU seconds are medians, CPU seconds summed over the processes; the ratios are to one process.
Starting a worker, which imports a framework, is told apart: it happens once, however many diffs follow.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

AIM = 1.5
WAYS = ("one process", "candidate remote", "both remote")
SHAPE = (2, 3, 224, 224)


def torch_model(name: str) -> Any:
    """Return torchvision's own model of a name."""
    import torch
    import torchvision

    torch.manual_seed(0)
    return getattr(torchvision.models, name)()


def paddle_model(name: str) -> Any:
    """Return paddle.vision's own model of a name."""
    import paddle
    from paddle.vision import models

    paddle.seed(0)
    return getattr(models, name)()


def measured(pair: str, repeats: int) -> dict[str, Any]:
    """Return the seconds of each way."""
    import numpy as np

    import padiff

    here = Path(__file__).resolve()
    inputs = (np.random.default_rng(0).standard_normal(SHAPE, dtype=np.float32),)
    started = time.perf_counter()
    with (
        padiff.remote(f"{here}:torch_model", args=(pair,)) as reference,
        padiff.remote(f"{here}:paddle_model", args=(pair,)) as candidate,
    ):
        for one in (reference, candidate):
            one.launch()
        for one in (reference, candidate):
            one.start()
        start = time.perf_counter() - started
        native = torch_model(pair), paddle_model(pair)
        ways: dict[str, Callable[[], Any]] = {
            "one process": lambda: padiff.diff(*native, inputs),
            "candidate remote": lambda: padiff.diff(native[0], candidate, inputs),
            "both remote": lambda: padiff.diff(reference, candidate, inputs),
        }

        def cpu() -> float:
            return time.process_time() + sum(float(one.load("time:process_time")) for one in (reference, candidate))

        wall: dict[str, list[float]] = {way: [] for way in ways}
        spent: dict[str, list[float]] = {way: [] for way in ways}
        for turn in range(repeats + 1):
            for way, run in ways.items():
                before = time.perf_counter(), cpu()
                report = run()
                after = time.perf_counter(), cpu()
                assert report.aligned, report
                if turn:  # the first only warms up
                    wall[way].append(after[0] - before[0])
                    spent[way].append(after[1] - before[1])
    medians = {way: {"wall": statistics.median(wall[way]), "cpu": statistics.median(spent[way])} for way in ways}
    return {"start": start, "seconds": medians}


def table(pair: str, found: dict[str, Any]) -> str:
    """Return the figures of a pair as text."""
    seconds = found["seconds"]
    one = seconds[WAYS[0]]
    lines = [
        f"{pair}, {'x'.join(map(str, SHAPE))}: torchvision x paddle.vision",
        f"{'':18}{'wall s':>9}{'ratio':>7}{'CPU s':>9}{'ratio':>7}",
    ]
    for way in WAYS:
        two = seconds[way]
        ratios = [f"{two[kind]:9.2f}{two[kind] / one[kind]:7.2f}" for kind in ("wall", "cpu")]
        lines.append(f"{way:18}{''.join(ratios)}")
    worst = max(seconds[way]["wall"] / one["wall"] for way in WAYS)
    return "\n".join(
        [*lines, f"worst ratio {worst:.2f} (aim {AIM}); starting both workers took {found['start']:.1f} s"]
    )


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("pair", nargs="?", default="all", choices=["resnet18", "resnet50", "all"], help="(default all)")
    parser.add_argument("--repeats", type=int, default=3, help="counted runs of each way (default 3)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    pairs = ["resnet18", "resnet50"] if options.pair == "all" else [options.pair]
    found = {}
    for pair in pairs:
        found[pair] = measured(pair, options.repeats)
        if not options.json:
            print(table(pair, found[pair]) + "\n", flush=True)
    if options.json:
        print(json.dumps({"figures": found, "aim": AIM}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
