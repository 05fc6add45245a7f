"""Measure what ``padiff.diff`` costs for each module, from shallow models to very deep ones.

Run ``python benchmarks/depth.py`` (``--most 4000`` blocks; ``--repeats``): a torch stack of small blocks and its Paddle
port. A block is a module with a linear layer, a norm and an activation, so a stack of n blocks has 4n + 1 modules on
each side. CPU seconds count all threads; what plain runs of both models take is left out, so that the figure is
padiff's own. It grows linearly if the last column stays about the same.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("OMP_NUM_THREADS", "1")

AIM = 2.0
"""Milliseconds for each module."""
WIDTH = 8


def pair(blocks: int) -> tuple[Any, Any]:
    """Return a stack of torch and the same in Paddle."""
    import paddle
    import torch

    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(WIDTH, WIDTH)
            self.norm = torch.nn.LayerNorm(WIDTH)
            self.act = torch.nn.Tanh()

        def forward(self, x: Any) -> Any:
            return x + self.act(self.norm(self.linear(x)))

    class PaddleBlock(paddle.nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.linear = paddle.nn.Linear(WIDTH, WIDTH)
            self.norm = paddle.nn.LayerNorm(WIDTH)
            self.act = paddle.nn.Tanh()

        def forward(self, x: Any) -> Any:
            return x + self.act(self.norm(self.linear(x)))

    return (
        torch.nn.Sequential(*(Block() for _ in range(blocks))),
        paddle.nn.Sequential(*(PaddleBlock() for _ in range(blocks))),
    )


def plain(ours: Any, theirs: Any, array: Any) -> float:
    """Return the CPU seconds of a forward and a backward run of both models."""
    import paddle
    import torch

    start = time.process_time()
    ours(torch.tensor(array, requires_grad=True)).sum().backward()
    theirs(paddle.to_tensor(array, stop_gradient=False)).sum().backward()
    spent = time.process_time() - start
    ours.zero_grad()
    theirs.clear_gradients()
    return spent


def measured(blocks: int, repeats: int) -> tuple[float, float]:
    """Return the median CPU seconds of a diff beyond the plain runs, and of the plain runs."""
    import numpy as np

    import padiff

    ours, theirs = pair(blocks)
    array = np.random.default_rng(0).standard_normal((2, WIDTH), dtype=np.float32)
    plain(ours, theirs, array)
    alone = statistics.median(plain(ours, theirs, array) for _ in range(repeats))
    spent = []
    for _ in range(repeats):
        start = time.process_time()
        report = padiff.diff(ours, theirs, (array,))
        spent.append(time.process_time() - start)
        if not report.aligned:
            raise SystemExit(str(report))
    return statistics.median(spent) - alone, alone


def main() -> int:
    """Print the figures; the exit status is 1 where the aim is missed."""
    import sys

    sys.setrecursionlimit(100_000)
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--most", type=int, default=4000, help="blocks of the deepest stack (default 4000)")
    parser.add_argument("--repeats", type=int, default=3, help="counted diffs of each stack (default 3)")
    options = parser.parse_args()
    measured(2, 1)  # the first diff of a process loads padiff and the adapters
    print("| blocks | modules | plain runs, s | padiff's own, s | ms a module |")
    print("|---|---|---|---|---|")
    worst = 0.0
    for blocks in (n for n in (8, 64, 512, 2000, 4000) if n <= options.most):
        own, alone = measured(blocks, options.repeats)
        modules = 4 * blocks + 1
        worst = max(worst, 1000 * own / modules)
        print(f"| {blocks} | {modules} | {alone:.2f} | {own:.2f} | {1000 * own / modules:.2f} |", flush=True)
    print(f"worst {worst:.2f} ms a module, aim {AIM:g}")
    return int(worst > AIM)


if __name__ == "__main__":
    raise SystemExit(main())
