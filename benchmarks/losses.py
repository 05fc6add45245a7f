"""Measure which losses are told from each other where rounding makes much of them.

Run ``python benchmarks/losses.py`` (``--seeds``, ``--json``).

One small model in two types, and a loss that each side computes by itself, right or with a slip in the candidate's: 5 %
more, twice as much, a term more. A loss that subtracts what is nearly the same (one less a cosine near one) is mostly
rounding in a narrow type, and right all the same.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from machine import machine
from torch import nn

import padiff

TYPES = {
    "float32, bfloat16": (torch.float32, torch.bfloat16),
    "bfloat16, float32": (torch.bfloat16, torch.float32),
    "float32, float16": (torch.float32, torch.float16),
    "bfloat16, bfloat16": (torch.bfloat16, torch.bfloat16),
}
LOSSES: dict[str, Callable[[Any, Any], Any]] = {
    "mean squared error": lambda y, wanted: F.mse_loss(y, wanted),
    "cross entropy": lambda y, wanted: F.cross_entropy(y, wanted.argmax(-1)),
    "one less a cosine": lambda y, wanted: 1 - F.cosine_similarity(y, wanted, dim=-1).mean(),
    "distance of distributions": lambda y, wanted: F.kl_div(
        F.log_softmax(y, -1), F.log_softmax(wanted, -1), log_target=True, reduction="batchmean"
    ),
    "advantage": lambda y, wanted: (torch.softmax(y, -1) * (wanted - wanted.mean())).sum(-1).mean(),
}
SLIPS: dict[str, Callable[[Any, Any], Any]] = {
    "right": lambda loss, _: loss,
    "5 % more": lambda loss, _: loss * 1.05,
    "twice": lambda loss, _: loss * 2,
    "a term more": lambda loss, y: loss + 0.1 * y.pow(2).mean(),
}


def models(types: tuple[torch.dtype, torch.dtype], seed: int) -> list[nn.Module]:
    """Return one model in two types."""
    found: list[nn.Module] = []
    for dtype in types:
        torch.manual_seed(seed)
        found.append(nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4)).to(dtype))
    return found


def told(name: str, types: tuple[torch.dtype, torch.dtype], slip: str, seed: int) -> bool:
    """Return whether a diff is not aligned."""
    generator = torch.Generator().manual_seed(seed)
    given, near = (torch.randn(4, size, generator=generator) for size in (6, 4))
    both = models(types, seed)
    narrow = max(types, key=lambda dtype: torch.finfo(dtype).eps)
    inputs = [given.to(narrow).to(dtype) for dtype in types]
    # What is wanted is near what is given, as in the middle of training: the loss is small beside what it is made of.
    wanted = both[0](inputs[0]).detach().float() + 0.1 * near
    loss, off = LOSSES[name], SLIPS[slip]
    held = [wanted.to(dtype) for dtype in types]
    losses = (lambda y: loss(y, held[0]), lambda y: off(loss(y, held[1]), y))
    report = padiff.diff(both[0], both[1], (inputs[0],), candidate_inputs=(inputs[1],), loss=losses)
    return not report.aligned


def main() -> None:
    """Print how many of each kind were told."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    options = parser.parse_args()
    found: dict[str, dict[str, int]] = {}
    for name in LOSSES:
        counts: Counter[str] = Counter(dict.fromkeys(SLIPS, 0))
        for types in TYPES.values():
            for slip in SLIPS:
                counts[slip] += sum(told(name, types, slip, seed) for seed in range(options.seeds))
        found[name] = dict(counts)
    of = len(TYPES) * options.seeds
    if options.json:
        print(json.dumps({"machine": machine(), "of": of, "not_aligned": found}))
        return
    print(machine())
    print(f"not aligned, of {of} each ({'; '.join(TYPES)}):")
    print(f"{'loss':28}{''.join(f'{slip:>14}' for slip in SLIPS)}")
    for name, counted in found.items():
        print(f"{name:28}{''.join(f'{counted[slip]:>14}' for slip in SLIPS)}")


if __name__ == "__main__":
    main()
