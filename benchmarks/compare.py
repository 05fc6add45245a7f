"""Measure padiff's comparison of two arrays against numpy's, in GB (of both arrays) per CPU second.

Run ``python benchmarks/compare.py`` (``--json`` for a machine, ``--megabytes``, ``--repeats``). CPU seconds
count all threads; each figure is the median of the repeats, which take turns so that a busy machine disturbs
all alike. ``assert_allclose`` is given tolerances under which it passes. The bound is what one core can move:
``np.copyto`` and C's ``memcmp`` over the same bytes. Extra memory is what one call allocates at its peak.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import json
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable

import numpy as np
from machine import machine

from padiff.numerics import difference

AIMS = {"unequal": 18.0, "equal": 34.0}
Run = Callable[[], object]


def cpu_seconds(run: Run) -> float:
    """Return the CPU seconds of one run, over all threads."""
    start = time.process_time()
    run()
    return time.process_time() - start


def extra_megabytes(run: Run) -> float:
    """Return the memory that one run allocates at its peak, in MB; numpy reports its own to tracemalloc."""
    tracemalloc.start()
    run()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 1e6


def measure(megabytes: int, repeats: int) -> dict[str, dict[str, float]]:
    """Return GB per CPU second, extra MB and the aim, by name."""
    size = megabytes * 1_000_000 // 4
    reference = np.random.default_rng(0).standard_normal(size, dtype=np.float32)
    unequal = reference * np.float32(1 + 1e-6)
    equal, target = reference.copy(), np.zeros_like(reference)
    memcmp = ctypes.CDLL(None).memcmp
    memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
    allclose = functools.partial(np.testing.assert_allclose, rtol=1e-3, atol=1e-3)
    runs: dict[str, Run] = {
        "bound: np.copyto": lambda: np.copyto(target, reference),
        "bound: memcmp": lambda: memcmp(reference.ctypes.data, equal.ctypes.data, reference.nbytes),
        "padiff difference, unequal": lambda: difference(reference, unequal),
        "padiff difference, equal": lambda: difference(reference, equal),
        "numpy assert_allclose, unequal": lambda: allclose(unequal, reference),
        "numpy assert_allclose, equal": lambda: allclose(equal, reference),
    }
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(repeats + 1):
        for name, run in runs.items():
            spent = cpu_seconds(run)
            if turn:  # the first only warms up
                seconds[name].append(spent)
    both = 2 * reference.nbytes / 1e9
    return {
        name: {
            "gb_per_cpu_second": both / statistics.median(seconds[name]),
            "extra_mb": extra_megabytes(run),
        }
        for name, run in runs.items()
    }


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=64, help="size of one array (default 64)")
    parser.add_argument("--repeats", type=int, default=15, help="runs of each (default 15)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    figures = measure(options.megabytes, options.repeats)
    ratios = {
        kind: figures[f"padiff difference, {kind}"]["gb_per_cpu_second"]
        / figures[f"numpy assert_allclose, {kind}"]["gb_per_cpu_second"]
        for kind in AIMS
    }
    where = machine("numpy")
    if options.json:
        print(json.dumps({"machine": where, "figures": figures, "ratios": ratios, "aims": AIMS}, indent=2))
        return 0
    print(f"Two float32 arrays of {options.megabytes} MB each; GB of both per CPU second")
    print(f"{'':32}{'GB/CPU s':>10}{'extra MB':>10}")
    for name, figure in figures.items():
        print(f"{name:32}{figure['gb_per_cpu_second']:10.1f}{figure['extra_mb']:10.1f}")
    for kind, aim in AIMS.items():
        print(f"{kind}: {ratios[kind]:.0f} times numpy; aim {aim:.0f} GB/CPU s")
    print(", ".join(f"{key} {value}" for key, value in where.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
