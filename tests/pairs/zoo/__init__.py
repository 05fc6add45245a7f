"""Build the pairs: `build(pair, framework, faults)` and `inputs(pair)`; frameworks are imported late."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from importlib import import_module
from typing import Any

import numpy as np

from . import native
from .limits import LIMITS, Limit, forward_only, possible
from .plan import FAULTY, Plan

__all__ = [
    "DIRECTIONS",
    "FAULTY",
    "FRAMEWORKS",
    "INTO_MINDSPORE",
    "LIMITS",
    "PAIRS",
    "WITHOUT_MINDSPORE",
    "Limit",
    "build",
    "forward_only",
    "inputs",
    "possible",
]

FRAMEWORKS = ("torch", "paddle", "mindspore")
PAIRS = ("transformer", "convnet", "recurrent", "llama", "vae")

DIRECTIONS = tuple(itertools.permutations(FRAMEWORKS, 2))
"""All pairs of frameworks, reference first."""

WITHOUT_MINDSPORE = tuple(pair for pair in DIRECTIONS if "mindspore" not in pair)
INTO_MINDSPORE = tuple(pair for pair in DIRECTIONS if pair[1] == "mindspore")


def build(
    pair: str,
    framework: str,
    faults: Iterable[str] = (),
    *,
    seed: int = 0,
    train: bool = True,
    dtype: str = "float32",
    **options: Any,
) -> Any:
    """Return one side of a pair, its vectors and buffers moved off their initial ones and zeros."""
    module = import_module(f"{__name__}.{pair}_{framework}")
    native.seed(framework, seed)
    with native.built_in(framework, dtype):
        model = module.build(Plan(faults), **options)
    native.cast(framework, model, dtype)
    _unsettle(model, framework, np.random.default_rng(seed))
    return native.set_mode(framework, model, train=train)


def _unsettle(model: Any, framework: str, rng: np.random.Generator) -> None:
    """Add noise to every vector: gammas of one and betas of zero hide a crossing."""
    for name, tensor in native.named(framework, model).items():
        if len(tensor.shape) != 1 or tensor.shape[0] < 2 or "inv_freq" in name or "flat_weight" in name:
            continue
        noise = rng.normal(0.0, 0.2, tuple(tensor.shape))
        native.write(framework, tensor, native.read(framework, tensor) + (abs(noise) if "var" in name else noise))


def inputs(pair: str, *, seed: int = 0, dtype: str = "float32") -> dict[str, np.ndarray]:
    """Return the arrays that both sides of a pair take, by argument name."""
    rng = np.random.default_rng(seed + 100)
    if pair == "transformer":
        mask = np.ones((2, 11), dtype="int64")
        mask[0, [0, 3]] = 0
        mask[1, [4, 5, 9]] = 0
        return {"ids": rng.integers(0, 32, (2, 11)), "attention_mask": mask}
    if pair == "convnet":
        return {"x": rng.normal(0.2, 1.0, (4, 3, 16, 16)).astype(dtype)}
    if pair == "recurrent":
        mask = np.ones((3, 7), dtype="int64")
        mask[1, 5:] = 0
        mask[2, 3:] = 0
        return {"tokens": rng.integers(1, 20, (3, 7)), "mask": mask}
    if pair == "llama":
        return {"input_ids": rng.integers(0, 23, (2, 9))}
    if pair == "vae":
        image = rng.normal(size=(3, 1, 8, 8)).astype(dtype)
        return {"image": image, "noise": rng.normal(size=(3, 6)).astype(dtype)}
    msg = f"unknown pair {pair!r}; there are {', '.join(PAIRS)}"
    raise ValueError(msg)
