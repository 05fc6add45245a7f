"""Name what an architecture needs of a framework, so that it is written once for all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import ml_dtypes
import numpy as np

__all__ = ["Kit", "Layout", "leaves", "lifted", "narrow", "summary"]


class Layout:
    """How one side lays its values out: the order of axes is a matter of taste."""

    def __init__(self, *, time_first: bool = False) -> None:
        self.time_first = time_first


class Kit:
    """Spell the neutral language in one framework; sequences are (batch, time, features) unless `time_first`."""

    name: str
    method = "forward"
    """What a module computes in."""
    wide = "float64"
    """The type that is wider than all others."""
    Module: Any

    def __init__(self, layout: Layout | None = None) -> None:
        self.layout = layout or Layout()
        self.random = np.random.default_rng(0)
        self.instances: dict[str, int] = {}
        self.dtype = "float32"
        """What the models are in."""

    # Values

    def normal(self, *shape: int) -> np.ndarray:
        """Draw float32 numbers."""
        return self.random.standard_normal(shape).astype(np.float32)

    def causal(self, x: Any, offset: int = 0) -> Any:
        """Return the mask that hides later positions from earlier ones, for scores (batch, heads, time, time)."""
        n = x.shape[-1]
        return self.constant(np.triu(np.full((n, n), -1e4), 1 + offset), x)

    def positions(self, x: Any) -> np.ndarray:
        """Return 0, 1, 2 for each step of time of queries (batch, heads, time, features)."""
        return np.arange(x.shape[2], dtype=np.float64)

    def top(self, x: Any, k: int) -> Any:
        """Return one where x is among the k largest of its last axis, else zero; no gradient goes there."""
        values = self.numpy(x)
        ranks = np.argsort(np.argsort(-values, axis=-1, kind="stable"), axis=-1)
        return self.constant(ranks < k, x)

    # Axes

    def sequence(self, x: Any) -> Any:
        """Bring (batch, time, ...) into the order of this side, or back."""
        return self.swapped(x) if self.layout.time_first else x

    def swapped(self, x: Any) -> Any:
        """Exchange the first two axes."""
        return self.permute(x, 1, 0, *range(2, len(x.shape)))

    def heads(self, x: Any, count: int) -> Any:
        """Return (batch, heads, time, features of a head)."""
        a, b, n = x.shape
        split = self.reshape(x, a, b, count, n // count)
        return self.permute(split, *((1, 2, 0, 3) if self.layout.time_first else (0, 2, 1, 3)))

    def merge(self, x: Any) -> Any:
        """Undo `heads`."""
        b, h, t, d = x.shape
        if self.layout.time_first:
            return self.reshape(self.permute(x, 2, 0, 1, 3), t, b, h * d)
        return self.reshape(self.permute(x, 0, 2, 1, 3), b, t, h * d)

    def step(self, x: Any, index: int) -> Any:
        """Return one step of time of a sequence."""
        return x[index] if self.layout.time_first else x[:, index]

    def stack(self, steps: Sequence[Any]) -> Any:
        """Return steps of time as a sequence."""
        shape = steps[0].shape
        axis = 0 if self.layout.time_first else 1
        parts = [self.reshape(step, *shape[:axis], 1, *shape[axis:]) for step in steps]
        return self.cat(parts, axis)

    @property
    def time(self) -> int:
        """Return which axis of a sequence the time is."""
        return 0 if self.layout.time_first else 1

    def turned(self, x: Any) -> Any:
        """Exchange the last two axes."""
        n = len(x.shape)
        return self.permute(x, *range(n - 2), n - 1, n - 2)

    def repeat(self, x: Any, times: int, axis: int) -> Any:
        """Return each element several times: a a b b."""
        return self.cat([part for part in self.parts(x, axis) for _ in range(times)], axis)

    def tile(self, x: Any, times: int, axis: int) -> Any:
        """Return all elements several times: a b a b."""
        return self.cat([x] * times, axis)

    def parts(self, x: Any, axis: int) -> list[Any]:
        """Return x cut into slices of one along an axis."""
        before = (slice(None),) * axis
        return [x[(*before, slice(i, i + 1))] for i in range(x.shape[axis])]

    def flip(self, x: Any, axis: int) -> Any:
        """Return x in reverse along an axis."""
        return self.cat(self.parts(x, axis)[::-1], axis)

    def roll(self, x: Any, shift: int, axis: int) -> Any:
        """Return x moved along an axis, what falls out comes in again."""
        parts = self.parts(x, axis)
        shift %= len(parts)
        return self.cat(parts[-shift:] + parts[:-shift], axis) if shift else x

    def upsample(self, x: Any, times: int) -> Any:
        """Return (batch, channels, height, width) with each pixel repeated."""
        return self.repeat(self.repeat(x, times, 2), times, 3)

    def pool(self, x: Any, size: int) -> Any:
        """Return the mean of each square."""
        b, c, h, w = x.shape
        x = self.reshape(x, b, c, h // size, size, w // size, size)
        return self.mean(self.mean(x, 5), 3)

    def chunks(self, x: Any, count: int) -> list[Any]:
        """Return the last axis in equal parts."""
        n = x.shape[-1] // count
        return [x[..., i * n : (i + 1) * n] for i in range(count)]

    def frozen(self, parameter: Any) -> Any:
        """Return a parameter that asks for no gradient."""
        self.freeze(parameter)
        return parameter

    def cut(self, x: Any, sizes: Sequence[int]) -> list[Any]:
        """Return the last axis in parts of these sizes."""
        ends = np.cumsum([0, *sizes]).tolist()
        return [x[..., a:b] for a, b in pairwise(ends)]

    def hand_softmax(self, x: Any, axis: int) -> Any:
        """Return a softmax, written out."""
        powers = self.exp(x - self.constant(self.numpy(x).max(axis, keepdims=True), x))
        return powers / self.sum(powers, axis, True)

    def wide_softmax(self, x: Any, axis: int) -> Any:
        """Return a softmax that is computed in a wider type."""
        return self.like(self.softmax(self.cast(x, self.wide), axis), x)

    # What each framework spells its own way

    def constant(self, values: Any, like: Any) -> Any:
        """Return numbers as a tensor of the dtype of another."""
        raise NotImplementedError

    def permute(self, x: Any, *axes: int) -> Any:
        """Return the axes in another order."""
        raise NotImplementedError

    def cat(self, parts: Sequence[Any], axis: int = -1) -> Any:
        """Join tensors."""
        raise NotImplementedError

    def mean(self, x: Any, axis: int, keep: bool = False) -> Any:
        """Return the mean along an axis."""
        raise NotImplementedError

    def reshape(self, x: Any, *shape: int) -> Any:
        """Return the same elements in another shape."""
        return x.reshape(shape)

    def numpy(self, x: Any) -> np.ndarray:
        """Return a tensor's values, bfloat16 as float32."""
        raise NotImplementedError

    def planes(self, count: int, values: Callable[[int], Any]) -> Any:
        """Return a list of modules, made one by one."""
        return self.modules([values(i) for i in range(count)])

    def modules(self, layers: Sequence[Any]) -> Any:
        """Return a list of modules."""
        raise NotImplementedError

    # Building

    def begin(self) -> None:
        """Seed what initial values are drawn from."""
        np.random.seed(0)

    def disturb(self, model: Any, rng: np.random.Generator) -> None:
        """Give all parameters other values, which follow from the generator alone: around one where they were."""
        for parameter in self.trainable(model):
            values = self.numpy(parameter)
            scale = 0.3 if values.ndim == 1 else float(np.prod(values.shape[1:])) ** -0.5
            drawn = rng.standard_normal(values.shape) * scale + (1.0 if values.size and values.mean() > 0.5 else 0.0)
            self.assign(parameter, drawn.astype("float32"))

    def chosen(self, name: str, classes: dict[int, Any]) -> Callable[..., Any]:
        """Return what makes instances of a class: under some of their numbers of another, marked as such."""

        def make(*args: Any, **kwargs: Any) -> Any:
            number = self.instances.get(name, 0)
            self.instances[name] = number + 1
            made = classes.get(number, classes[-1])(*args, **kwargs)
            made.diagnosed = f"{name}:{number}"
            return made

        return make


def leaves(value: Any) -> list[Any]:
    """Return the tensors in what a model returned: of a dictionary by its keys, of a tuple by their shapes.

    Outputs of other shapes at other positions are matched, and told in a note: that is no bug to the judge.
    """
    if isinstance(value, dict):
        return [leaf for key in sorted(value) for leaf in leaves(value[key])]
    if isinstance(value, list | tuple):
        return sorted((leaf for one in value for leaf in leaves(one)), key=lambda leaf: list(leaf.shape))
    return [value]


def lifted(values: np.ndarray) -> np.ndarray:
    """Return floating values in float64."""
    return values if values.dtype.kind in "iub" else values.astype("float64")


def summary(buffers: Sequence[np.ndarray]) -> np.ndarray:
    """Return a number of which buffers are others, in no order."""
    return np.asarray([sum(float(np.sum(np.square(b, dtype=np.float64))) for b in buffers)])


def narrow(values: np.ndarray, dtype: str) -> np.ndarray:
    """Return floating values in a dtype, integers as they are."""
    return values.astype(np.dtype(getattr(ml_dtypes, dtype, dtype))) if values.dtype.kind == "f" else values
