"""Reduce tensors to a few numbers where they lie: no copy to the host, no waiting for what the device still does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from padiff.adapter import Array, Reduction, sketching

_ONCE = 256 * sketching.BLOCK
"""Elements that are reduced at once: what is computed in between takes three times their memory."""
_EXACT = {torch.float32: torch.float32, torch.bfloat16: torch.float32, torch.float16: torch.float32}
"""What is sketched in float32; everything else is in float64, as on the host."""


def reducible(native: Any) -> bool:
    """Return whether a tensor lies on a device that computes sums in float64, and is one plain block of numbers."""
    plain = native.layout is torch.strided and not (native.is_nested or native.is_quantized or native.is_complex())
    return (
        plain
        and native.device.type not in ("cpu", "meta", "mps")
        and native.numel() > 0
        and type(native).__name__ != "DTensor"
    )


@torch.no_grad()
def reduced(native: Any, asked: Reduction) -> Mapping[str, Any]:
    """Return the numbers that are asked for, as tensors on the device."""
    value = native.detach()
    value = value if asked.order is None else value.permute(asked.order)
    flat = value.reshape(-1)
    found = {"sample": flat[_places(flat.numel(), flat.device)]}
    if not asked.norm:
        return found
    if not flat.is_floating_point():
        flat = flat.double()
    elif flat.element_size() == 1:
        flat = flat.float()
    parts = [
        _figures(part, asked, start)
        for start, part in zip(range(0, flat.numel(), _ONCE), flat.split(_ONCE), strict=True)
    ]
    return found | (parts[0] if len(parts) == 1 else _joined(parts))


def _figures(part: Any, asked: Reduction, start: int) -> dict[str, Any]:
    """Return the figures of a part of a flat tensor, in which what is not finite counts as zero."""
    finite = torch.nan_to_num(part, nan=0.0, posinf=0.0, neginf=0.0)
    found = {
        "norm": torch.linalg.vector_norm(finite, dtype=torch.float64),
        "wrong": (part != finite).sum(),
        "nans": part.isnan().sum(),
    }
    if asked.extremes:
        found["total"] = finite.sum(dtype=torch.float64)
        found["low"], found["high"] = torch.aminmax(finite)
    if asked.sketched:
        found["sketch"] = _sketched(finite, start // sketching.BLOCK)
    return found


def _joined(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the figures of a whole by those of its parts."""
    stacked = {name: torch.stack([part[name] for part in parts]) for name in parts[0]}
    how = {"norm": torch.linalg.vector_norm, "low": torch.amin, "high": torch.amax}
    return {name: torch.sum(one, 0) if name not in how else how[name](one) for name, one in stacked.items()}


def _sketched(part: Any, block: int) -> Any:
    """Return the projection of neighbouring elements, which begin with a block of the whole."""
    width, size = sketching.WIDTH, part.numel()
    work = _EXACT.get(part.dtype, torch.float64)
    whole = -(-size // sketching.BLOCK)
    rows = sketching.BLOCK // width if whole > 1 else -(-size // width)
    part = torch.nn.functional.pad(part.to(work), (0, whole * rows * width - size)).view(whole, rows, width)
    sums = (part * _table(part.device, work)[:rows]).sum(1, dtype=torch.float64)
    signs, places = _exchanges(_rounded_up(block + whole), part.device)
    return (signs[block : block + whole] * sums.gather(1, places[block : block + whole])).sum(0)


def _rounded_up(count: int) -> int:
    return 1 << (count - 1).bit_length()


@lru_cache(maxsize=512)
def _places(size: int, device: Any) -> Any:
    return torch.from_numpy(sketching.places_of_sample(size)).to(device)


@lru_cache(maxsize=8)
def _table(device: Any, work: Any) -> Any:
    return torch.from_numpy(sketching.signs_of(np.float64)).to(device, work)


@lru_cache(maxsize=32)
def _exchanges(count: int, device: Any) -> tuple[Any, Any]:
    signs, places = sketching.exchanges(count)
    return torch.from_numpy(signs).to(device), torch.from_numpy(places).to(device)


@torch.no_grad()
def fetched(natives: Sequence[Any]) -> list[Array]:
    """Return the values of small tensors: of each dtype and device all in one copy."""
    groups: dict[Any, list[int]] = {}
    for index, native in enumerate(natives):
        groups.setdefault((native.device, native.dtype), []).append(index)
    found: dict[int, Array] = {}
    for (device, _), indices in groups.items():
        # What a backward pass computed may have been put into another stream.
        getattr(torch, device.type).synchronize(device)
        joined = torch.cat([natives[index].reshape(-1) for index in indices]).cpu()
        wide = (joined.double() if joined.is_floating_point() else joined).numpy()
        ends = np.cumsum([natives[index].numel() for index in indices])
        found.update(zip(indices, np.split(wide, ends[:-1]), strict=True))
    return [found[index] for index in range(len(natives))]
