"""Measure what one ``padiff.diff`` costs beside the plain forward and backward runs of both models.

Run ``python benchmarks/cost.py`` (``resnet50``, ``encoder`` or ``all``; ``--json`` for a machine, ``--repeats``).

CPU seconds count all threads of the process. One process builds the pair, runs it plainly and under a default
``diff`` once to warm up (told as the first turn), then takes turns: plain, diff, plain, diff, ...; each figure is the
median. "Plain" is what a user would write: both models forward and backward, reference first, with gradients for inputs
and parameters.
Worker threads sleep while they wait (``OMP_WAIT_POLICY=PASSIVE``, unless set otherwise): spinning threads would
count as work, and on a busy machine outweigh it.

Peak RSS is the high-water mark of a process of its own: both processes build the pair and run it plainly once (the
warm-up); then one runs it plainly once more and the other calls ``diff`` once. Interpreter, frameworks and models are
in both figures.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from machine import machine

AIMS = {"resnet50": {"cpu": 1.45, "rss": 1.6}, "encoder": {"cpu": 1.25, "rss": 1.4}}
TITLES = {
    "resnet50": "ResNet-50, 2x3x224x224: torchvision x paddle.vision",
    "encoder": "Encoder 12x768, sequence 128, batch 4: torch.nn x paddle.nn",
}


# The pairs -----------------------------------------------------------------------------------------------------


def resnet50() -> tuple[Any, Any, tuple[int, ...]]:
    """Return both libraries' own ResNet-50, as constructed (training mode), and the input's shape."""
    import torch  # noqa: F401  torchvision 0.16.2 needs it first
    from paddle.vision.models import resnet50 as paddle_resnet50
    from torchvision.models import resnet50 as torch_resnet50

    return torch_resnet50(), paddle_resnet50(), (2, 3, 224, 224)


def encoder() -> tuple[Any, Any, tuple[int, ...]]:
    """Return both frameworks' own encoder of 12 layers: width 768, 12 heads, feed-forward 3072, no dropout."""
    import paddle
    import torch

    ours = torch.nn.TransformerEncoder(
        torch.nn.TransformerEncoderLayer(768, 12, 3072, 0.0, batch_first=True), 12, enable_nested_tensor=False
    )
    theirs = paddle.nn.TransformerEncoder(paddle.nn.TransformerEncoderLayer(768, 12, 3072, 0.0, "relu"), 12)
    return ours, theirs, (4, 128, 768)


PAIRS: dict[str, Callable[[], tuple[Any, Any, tuple[int, ...]]]] = {"resnet50": resnet50, "encoder": encoder}


def prepared(pair: str) -> tuple[Callable[[], None], Callable[[], Any]]:
    """Build a pair; return its plain run and its diff."""
    import numpy as np
    import paddle
    import torch

    import padiff

    torch.manual_seed(0)
    paddle.seed(0)
    ours, theirs, shape = PAIRS[pair]()
    array = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)

    def plain() -> None:
        values = torch.tensor(array, requires_grad=True)
        output = ours(values)
        output.backward(torch.ones_like(output))
        other_values = paddle.to_tensor(array, stop_gradient=False)
        other_output = theirs(other_values)
        other_output.backward(paddle.ones_like(other_output))
        ours.zero_grad()
        theirs.clear_gradients(set_to_zero=False)

    return plain, lambda: padiff.diff(ours, theirs, (array,))


# Measuring -----------------------------------------------------------------------------------------------------


def measured_cpu(pair: str, repeats: int) -> dict[str, Any]:
    """Return the median CPU and wall seconds of both, taking turns in this process, and diff's verdict."""
    plain, diff = prepared(pair)
    runs: dict[str, Callable[[], Any]] = {"plain": plain, "diff": diff}
    cpu: dict[str, list[float]] = {name: [] for name in runs}
    wall: dict[str, list[float]] = {name: [] for name in runs}
    verdict = {}
    for _ in range(repeats + 1):
        for name, run in runs.items():
            start = time.process_time(), time.perf_counter()
            report = run()
            spent = time.process_time() - start[0], time.perf_counter() - start[1]
            cpu[name].append(spent[0])
            wall[name].append(spent[1])
            if name == "diff":
                verdict = {"aligned": report.aligned, "counts": dict(report.counts)}
    return {
        "first_cpu_seconds": {name: values[0] for name, values in cpu.items()},
        "cpu_seconds": {name: statistics.median(values[1:]) for name, values in cpu.items()},
        "wall_seconds": {name: statistics.median(values[1:]) for name, values in wall.items()},
        "cpu_runs": cpu,
        **verdict,
    }


def measured_rss(pair: str, run: str) -> float:
    """Return this process's peak RSS in MB after a plain run to warm up and one run of a kind."""
    plain, diff = prepared(pair)
    plain()
    {"plain": plain, "diff": diff}[run]()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6


def child(*arguments: str) -> Any:
    """Run this file in a fresh process; return what it prints last, as JSON."""
    command = [sys.executable, os.path.abspath(__file__), "--child", *arguments]
    environment = {"OMP_WAIT_POLICY": "PASSIVE", **os.environ}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr[-4000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def measure(pair: str, repeats: int) -> dict[str, Any]:
    """Return all figures of a pair."""
    figures: dict[str, Any] = child("cpu", pair, str(repeats))
    figures["rss_mb"] = {run: child("rss", pair, run) for run in ("plain", "diff")}
    named = {"first": "first_cpu_seconds", "cpu": "cpu_seconds", "rss": "rss_mb"}
    figures["ratios"] = {short: figures[name]["diff"] / figures[name]["plain"] for short, name in named.items()}
    return figures


def table(pair: str, figures: dict[str, Any]) -> str:
    """Return the figures of a pair as text."""
    cpu, first, rss = figures["cpu_seconds"], figures["first_cpu_seconds"], figures["rss_mb"]
    ratios, aims = figures["ratios"], AIMS[pair]
    counts = ", ".join(f"{count} {verdict}" for verdict, count in figures["counts"].items())
    return "\n".join(
        [
            TITLES[pair],
            f"{'':14}{'plain':>10}{'diff':>10}{'ratio':>8}{'aim':>8}",
            f"{'CPU seconds':14}{cpu['plain']:10.2f}{cpu['diff']:10.2f}{ratios['cpu']:8.2f}{aims['cpu']:8.2f}",
            f"{'  first turn':14}{first['plain']:10.2f}{first['diff']:10.2f}{ratios['first']:8.2f}",
            f"{'peak RSS, MB':14}{rss['plain']:10.0f}{rss['diff']:10.0f}{ratios['rss']:8.2f}{aims['rss']:8.2f}",
            f"verdict: {'aligned' if figures['aligned'] else 'not aligned'} (calls: {counts})",
        ]
    )


def main() -> int:
    """Print the figures."""
    if sys.argv[1:2] == ["--child"]:
        kind, pair, last = sys.argv[2:5]
        print(json.dumps(measured_cpu(pair, int(last)) if kind == "cpu" else measured_rss(pair, last)))
        return 0
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("pair", nargs="?", default="all", choices=[*PAIRS, "all"], help="(default all)")
    parser.add_argument("--repeats", type=int, default=3, help="counted runs of each (default 3)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    pairs = list(PAIRS) if options.pair == "all" else [options.pair]
    figures = {}
    for pair in pairs:
        figures[pair] = measure(pair, options.repeats)
        if not options.json:
            print(table(pair, figures[pair]) + "\n", flush=True)
    where = machine("numpy", "torch", "torchvision", "paddlepaddle")
    if options.json:
        print(json.dumps({"machine": where, "figures": figures, "aims": AIMS}, indent=2))
        return 0
    print(", ".join(f"{key} {value}" for key, value in where.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
