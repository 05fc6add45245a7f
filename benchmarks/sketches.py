"""Measure what a sketch shows of the difference of two values.

Run ``python benchmarks/sketches.py`` (``--repeats``, ``--json``).

*Structures*: differences of one value of 512 x 768 elements that networks make; of each so many are drawn and sketched,
and the estimated norm is divided by the real one. *Sizes*: a value in float32 and the same moved by noise of a relative
size: what the sketches of both estimate, what the values say, and the same where one side's sketch is added up of 8
shards', split along the last axis. *Cost*: nanoseconds an element, of a large value, of shards of it, of its transpose.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from machine import machine

from padiff.numerics import SKETCH_ERROR, sketch
from padiff.trace import summarized

ROWS, WIDTH = 512, 768
STRUCTURES: dict[str, Callable[[Any, int], Any]] = {
    "noise": lambda rng, _: rng.standard_normal((ROWS, WIDTH)),
    "one number everywhere": lambda _, n: np.ones((ROWS + n, WIDTH)),
    "a bias, the same in every row": lambda rng, _: np.ones((ROWS, 1)) * rng.standard_normal((1, WIDTH)),
    "a product of two vectors": lambda rng, _: rng.standard_normal((ROWS, 1)) * rng.standard_normal((1, WIDTH)),
    "one head of 12": lambda rng, n: rng.standard_normal((ROWS, 12, 64)) * (np.arange(12) == n % 12)[:, None],
    "one column": lambda rng, n: np.eye(1, WIDTH, n) * rng.standard_normal((ROWS, 1)),
    "one row": lambda rng, n: np.eye(ROWS, 1, -n) * rng.standard_normal((1, WIDTH)),
    "one element": lambda _, n: np.eye(ROWS, WIDTH, n) * (np.arange(ROWS) == n)[:, None],
    "slowly along all elements": lambda _, n: np.sin(np.linspace(0, n + 1, ROWS * WIDTH)),
    "one column of 755 = 5 x 151": lambda _, n: np.eye(1, 755, n) * np.ones((ROWS, 1)),
}
SIZES = [1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0]


def norm(values: Any) -> float:
    """Return the L2 norm."""
    return float(np.linalg.norm(np.asarray(values, np.float64)))


def structures(repeats: int) -> dict[str, dict[str, float]]:
    """Return what estimated norms are of real ones."""
    found = {}
    for name, draw in STRUCTURES.items():
        rng = np.random.default_rng(0)
        drawn = [draw(rng, number).astype(np.float32) for number in range(repeats)]
        shares = [norm(sketch(one)) / norm(one) for one in drawn]
        found[name] = {
            "mean": float(np.mean(shares)),
            "std": float(np.std(shares)),
            "least": min(shares),
            "most": max(shares),
        }
    return found


def sizes(repeats: int) -> dict[str, dict[str, float]]:
    """Return what sketches estimate of relative differences, and what values say."""
    found: dict[str, dict[str, float]] = {}
    for size in SIZES:
        rows = []
        for seed in range(repeats):
            rng = np.random.default_rng(seed)
            value = rng.standard_normal((ROWS, WIDTH), dtype=np.float32)
            other = (value * (1 + size * rng.standard_normal((ROWS, WIDTH)))).astype(np.float32)
            told, whole = sketch(other), sketch(value)
            indices = [np.arange(ROWS), np.arange(WIDTH)]
            shards = np.split(np.arange(WIDTH), 8)
            added = sum(sketch(other[:, one], [indices[0], one], value.shape) for one in shards)
            real = norm(other.astype(np.float64) - value) / norm(value)
            rows.append([real, norm(told - whole) / norm(value), norm(added - whole) / norm(value)])
        real, told, parts = np.array(rows).T
        found[f"{size:g}"] = {
            "real": float(real.mean()),
            "estimated": float(told.mean()),
            "worst_share": float(abs(told / real - 1).max()),
            "of_parts": float(parts.mean()),
        }
    return found


def cost() -> dict[str, float]:
    """Return nanoseconds an element, the best of five."""
    value = np.random.default_rng(0).standard_normal((4096, 4096), dtype=np.float32)
    rows, first = np.arange(4096), np.arange(512)
    column, row = np.ascontiguousarray(value[:, :512]), value[:512]
    ways: dict[str, tuple[Callable[[], Any], int]] = {
        "summary": (lambda: summarized(value), value.size),
        "norm and sample alone": (lambda: summarized(value, extremes=False), value.size),
        "the same with a sketch": (lambda: summarized(value, extremes=False, sketched=True), value.size),
        "sketch of a shard of 8, rows": (lambda: sketch(row, [first, rows], value.shape), row.size),
        "sketch of a shard of 8, columns": (lambda: sketch(column, [rows, first], value.shape), column.size),
        "sketch of the transpose": (lambda: sketch(value.T), value.size),
    }
    found = {}
    for name, (run, size) in ways.items():
        spent = []
        for _ in range(5):
            start = time.process_time()
            run()
            spent.append(time.process_time() - start)
        found[name] = min(spent) / size * 1e9
    return found


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=100, help="draws of each sort (default 100)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    by_structure, by_size, costs = structures(options.repeats), sizes(min(options.repeats, 20)), cost()
    where = machine("numpy")
    if options.json:
        figures = {"structures": by_structure, "sizes": by_size, "cost": costs}
        print(json.dumps({"machine": where, "figures": figures, "error": SKETCH_ERROR}, indent=2))
        return 0
    print(f"estimated norm over real norm (one standard error is at most {SKETCH_ERROR:.3f})")
    for name, one in by_structure.items():
        print(f"| {name} | {one['mean']:.3f} | {one['std']:.3f} | {one['least']:.2f} to {one['most']:.2f} |")
    print("relative L2 difference: real, estimated, farthest off, of a sketch added up of 8 shards'")
    for name, one in by_size.items():
        numbers = f"{one['real']:.2e} | {one['estimated']:.2e} | {one['worst_share']:.0%} | {one['of_parts']:.2e}"
        print(f"| {name} | {numbers} |")
    print("nanoseconds an element")
    for name, spent in costs.items():
        print(f"| {name} | {spent:.2f} |")
    print(", ".join(f"{key} {value}" for key, value in where.items()))
    return 0


if __name__ == "__main__":
    main()
