"""Reduce tensors to a few numbers where they lie: no copy to the host, no waiting for what the device still does.

A step has many tensors of few sizes, and a device takes longer to be told of a small one than to read it. So small ones
of one size are kept, as copies, until some can be read together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from padiff.adapter import Array, Reducer, Reduction, sketching

_ONCE = 256 * sketching.BLOCK
"""Elements that are read at once: what is computed in between takes three times their memory."""
_TOGETHER = _ONCE // 4
"""Elements of tensors of one size that are read together."""
_KEPT = 1 << 27
"""Bytes of copies that wait, at most."""
_WORK = {torch.float32: torch.float32, torch.bfloat16: torch.float32, torch.float16: torch.float32}
"""What is sketched in float32; everything else is in float64, as on the host."""
_JOINED = {"norm": torch.linalg.vector_norm, "low": torch.amin, "high": torch.amax}
"""What makes a figure of those of parts; else it is their sum."""


def reducible(native: Any) -> bool:
    """Return whether a tensor lies on a device that computes sums in float64, and is one plain block of numbers."""
    if native.device.type in ("cpu", "meta", "mps"):
        return False
    plain = native.layout is torch.strided and not (native.is_nested or native.is_quantized or native.is_complex())
    return bool(plain and native.numel() > 0 and type(native).__name__ != "DTensor")


class TorchReducer(Reducer):
    """What reduces the tensors of a step, and brings all numbers over in one copy for each of their types."""

    def __init__(self) -> None:
        self._count = self._bytes = 0
        self._waiting: dict[tuple[Any, ...], list[tuple[int, Any]]] = {}
        """What tensors that are read together have in common -> them, flat, each with its number."""
        self._found: list[tuple[Sequence[int], dict[str, Any]]] = []

    def add(self, native: Any, reduction: Reduction, *, steady: bool = False) -> bool:
        """Take a tensor; one that is not ``steady`` may be written to before the rest is there."""
        if not reducible(native):
            return False
        self._take(native, reduction, steady=steady)
        return True

    @torch.no_grad()
    def _take(self, native: Any, reduction: Reduction, *, steady: bool) -> None:
        value = native.detach()
        value = value if reduction.order is None else value.permute(reduction.order)
        flat, index = value.reshape(-1), self._count
        self._count += 1
        if not reduction.norm:
            self._found.append(([index], {"sample": flat[_places(flat.numel(), flat.device)][None]}))
        elif flat.numel() >= _TOGETHER:
            self._found.append(([index], _figures([flat], reduction)))
        else:
            key = flat.device, flat.dtype, flat.numel(), reduction
            waiting = self._waiting.setdefault(key, [])
            waiting.append((index, flat if steady else flat.clone()))
            self._bytes += flat.numel() * flat.element_size()
            if len(waiting) * flat.numel() >= _TOGETHER:
                self._read(key)
            elif self._bytes > _KEPT:
                self._read_all()

    def _read(self, key: tuple[Any, ...]) -> None:
        """Reduce what waits with one key."""
        indices, flats = zip(*self._waiting.pop(key), strict=True)
        self._bytes -= sum(flat.numel() * flat.element_size() for flat in flats)
        self._found.append((indices, _figures(flats, key[-1])))

    def _read_all(self) -> None:
        for key in list(self._waiting):
            self._read(key)

    @torch.no_grad()
    def fetch(self) -> list[Mapping[str, Array]]:
        """Return the numbers of each tensor, in the order in which they were taken."""
        self._read_all()
        found, count = self._found, self._count
        self._found, self._count = [], 0
        arrays = iter(_fetched([one for _, numbers in found for one in numbers.values()]))
        numbers_of: list[dict[str, Array]] = [{} for _ in range(count)]
        for indices, numbers in found:
            for name in numbers:
                rows = next(arrays)
                for index, row in zip(indices, rows, strict=True):
                    numbers_of[index][name] = row
        return list(numbers_of)


def _figures(flats: Sequence[Any], reduction: Reduction) -> dict[str, Any]:
    """Return the figures of flat tensors of one size, each a row for each tensor."""
    rows = flats[0][None] if len(flats) == 1 else torch.stack(list(flats))
    found = {"sample": rows[:, _places(rows.shape[1], rows.device)]}
    if not rows.is_floating_point():
        rows = rows.double()
    elif rows.element_size() == 1:
        rows = rows.float()
    parts = [_of_part(rows[:, at : at + _ONCE], reduction, at) for at in range(0, rows.shape[1], _ONCE)]
    if len(parts) == 1:
        return found | parts[0]
    stacked = {name: torch.stack([part[name] for part in parts]) for name in parts[0]}
    joined = {name: _JOINED[name](one, dim=0) if name in _JOINED else one.sum(0) for name, one in stacked.items()}
    return found | joined


def _of_part(rows: Any, reduction: Reduction, start: int) -> dict[str, Any]:
    """Return the figures of a part of flat tensors, in which what is not finite counts as zero."""
    finite = torch.nan_to_num(rows, nan=0.0, posinf=0.0, neginf=0.0)
    found = {
        "norm": torch.linalg.vector_norm(finite, dim=1, dtype=torch.float64),
        "wrong": (rows != finite).sum(1),
        "nans": rows.isnan().sum(1),
    }
    if reduction.extremes:
        found["total"] = finite.sum(1, dtype=torch.float64)
        found["low"], found["high"] = torch.aminmax(finite, dim=1)
    if reduction.sketched:
        found["sketch"] = _sketched(finite, start // sketching.BLOCK)
    return found


def _sketched(rows: Any, block: int) -> Any:
    """Return the projections of neighbouring elements, which begin with a block of the whole."""
    width, (count, size) = sketching.WIDTH, rows.shape
    work = _WORK.get(rows.dtype, torch.float64)
    blocks = -(-size // sketching.BLOCK)
    high = sketching.BLOCK // width if blocks > 1 else -(-size // width)
    padded = torch.nn.functional.pad(rows.to(work), (0, blocks * high * width - size))
    signed = padded.view(count, blocks, high, width) * _table(rows.device, work)[:high]
    signs, places = (
        one[block : block + blocks] for one in _exchanges(1 << (block + blocks - 1).bit_length(), rows.device)
    )
    sums = signed.sum(2, dtype=torch.float64)
    return (signs * sums.gather(2, places.expand(count, blocks, width))).sum(1)


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


def _fetched(natives: Sequence[Any]) -> list[Array]:
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
        parts = np.split(wide, ends[:-1])
        found |= {index: part.reshape(natives[index].shape) for index, part in zip(indices, parts, strict=True)}
    return [found[index] for index in range(len(natives))]
