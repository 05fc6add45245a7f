"""Compare by the rules that one would write oneself: what every layer gives, outputs, gradients of inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .kit import leaves

__all__ = ["RULES", "Taps", "told"]


def _within(rtol: float, atol: float) -> Callable[[np.ndarray, np.ndarray], bool]:
    return lambda ours, theirs: bool(np.allclose(theirs, ours, rtol=rtol, atol=atol, equal_nan=True))


def _cosine(ours: np.ndarray, theirs: np.ndarray) -> bool:
    a, b = ours.ravel(), theirs.ravel()
    return bool(float(a @ b) >= 0.99 * float(np.linalg.norm(a) * np.linalg.norm(b)))


RULES: dict[str, Callable[[np.ndarray, np.ndarray], bool]] = {
    "torch.testing.assert_close": _within(1.3e-6, 1e-5),
    "allclose 1e-5": _within(1e-5, 1e-5),
    "cosine 0.99": _cosine,
}
"""The first has the defaults that assert_close has for float32."""

Taps = tuple[dict[str, list[np.ndarray]], list[np.ndarray]]
"""What each layer gives, by its path; and the ends: outputs and gradients of inputs."""


def tapped(kit: Any, model: Any, arrays: Any) -> Taps:
    """Run a model in its own types, and keep what each layer gives."""
    kept: dict[str, list[np.ndarray]] = {}
    removers = []
    for path, module in kit.named(model).items():
        keep = lambda output, path=path: kept.setdefault(path, []).extend(map(kit.numpy, leaves(output)))  # noqa: E731
        removers.append(kit.tap(module, keep))
    try:
        return kept, kit.wholly(model, arrays, lift=False)[:-2]
    finally:
        for remove in removers:
            remove()


def told(rule: str, matched: Any, ours: Taps, theirs: Taps) -> bool:
    """Return whether a rule finds a difference; which layer belongs to which, and the weights, it has of padiff."""
    values = [*zip(ours[1], theirs[1], strict=False)]
    for pair in matched.modules:
        values += zip(ours[0].get(pair.reference, ()), theirs[0].get(pair.candidate, ()), strict=False)
    return any(a.shape == b.shape and not RULES[rule](a.astype("float32"), b.astype("float32")) for a, b in values)
