"""Put a model's tensors back as they were, and other storages under them; let its cells draw as they should."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, partial, wraps
from typing import Any

import mindspore
import numpy as np
from mindspore import nn, ops
from mindspore.common.seed import _get_graph_seed
from mindspore.train import amp

from padiff.adapter import dtypes, leaves, machinery_of, map_leaves, replaced
from padiff_mindspore.autograd import finish
from padiff_mindspore.tensor import array_of, from_array, give, overwrite
from padiff_mindspore.versions import MINDSPORE

_WITHOUT_FLOAT64 = (
    "AffineGrid BatchNorm BCEWithLogitsLoss BinaryCrossEntropy Conv2D Conv2DBackpropInput Conv2DTranspose "
    "Conv3D Conv3DTranspose HShrink Lerp LpNorm LRN PReLU ReLU6 SoftShrink"
)
"""Primitives that have a float32 kernel on a CPU, and none for float64."""
_in_type = mindspore.Tensor.to
"""The function itself: what replaces MindSpore's for a while leaves out casts."""
_OPERATORS = [f"__{turned}{name}__" for name in ("add", "sub", "mul", "truediv") for turned in ("", "r")]


def remembered(native: Any) -> Callable[[], None]:
    """Return what puts gradient and requires_grad of a parameter or buffer back."""
    gradient = native._grad
    trained = native.requires_grad if isinstance(native, mindspore.Parameter) else None

    def restore() -> None:
        if trained is not None and native.requires_grad != trained:
            native.requires_grad = trained
        native._grad = gradient

    return restore


def kept(native: Any) -> Callable[[], None]:
    """Return what puts the values of a buffer back."""
    return partial(overwrite, native, np.array(array_of(native)))


def cast(native: Any, dtype: str) -> Any:
    """Return a tensor with the values of another in a wider dtype, without its history."""
    return from_array(array_of(native).astype(dtypes.numpy_dtype(dtype)))


def storage(native: Any) -> Any:
    """Return what holds a tensor's values."""
    return ops.stop_gradient(native)


def hold(native: Any, storage: Any) -> None:
    """Put other values under a tensor; a gradient, whose dtype would no longer be the tensor's, goes."""
    native._grad = None
    give(native, storage)


@contextmanager
def computing_in(dtype: str) -> Iterator[None]:
    """Wait at the end for what still runs, which would write over what is put back; there is no default dtype.

    In float64 operators take numbers as they are: MindSpore rounds them to float32, whatever the tensor's type.
    """
    with ExitStack() as stack:
        stack.callback(finish)
        for name in _OPERATORS if dtype == "float64" else ():
            stack.enter_context(replaced(mindspore.Tensor, name, _exact(getattr(mindspore.Tensor, name))))
        yield


def _exact(operator: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    @wraps(operator)
    def called(native: Any, other: Any) -> Any:
        if isinstance(other, float) and np.float32(other) != other and native.dtype == mindspore.float64:
            other = from_array(np.asarray(other, np.float64))
        return operator(native, other)

    return called


@contextmanager
def narrowing() -> Iterator[None]:
    """Let primitives without a float64 kernel compute in float32 within, backward too; what they raise ends a graph."""
    with ExitStack() as stack:
        for cls in (getattr(mindspore.ops.operations, name) for name in _WITHOUT_FLOAT64.split()):
            stack.enter_context(replaced(cls, "__call__", _narrow(cls.__call__)))
        yield


def _narrow(call: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(call)
    def called(primitive: Any, *args: Any) -> Any:
        given = _turned(args, mindspore.float64, mindspore.float32)
        statistics = [(own, one, array_of(one).copy()) for own, one in zip(args, given, strict=True) if _is_state(own)]
        output = call(primitive, *given)
        for own, one, before in statistics:
            if not np.array_equal(array_of(one), before):
                overwrite(own, array_of(one).astype(np.float64))
        return _turned(output, mindspore.float32, mindspore.float64)

    return called


def _is_state(value: Any) -> bool:
    """Return whether a primitive may write into what it is given: the statistics of a norm."""
    return isinstance(value, mindspore.Parameter) and value.dtype == mindspore.float64 and not value.requires_grad


def _turned(values: Any, own: Any, other: Any) -> Any:
    """Return values with tensors of one type in another, with their history."""

    def is_own(value: Any) -> bool:
        return isinstance(value, mindspore.Tensor) and value.dtype == own

    return map_leaves(values, is_own, lambda _, value: _in_type(value, other))


@contextmanager
def uncast(cells: Iterable[Any], dtype: str) -> Iterator[None]:
    """Leave out the casts of ``to_float`` and amp, which would round in a wider type as before."""
    push, off = amp.push_amp_strategy, amp.AmpLevel.AmpO0
    within = [replaced(amp, "push_amp_strategy", lambda _, *rest: push(off, *rest))]
    for cell in cells:
        if cell.mixed_precision_type is not None:
            within.append(replaced(cell, "mixed_precision_type", None))
        if isinstance(cell, amp._OutputTo16):
            within.append(replaced(cell, "dtype", getattr(mindspore, dtype)))
    with ExitStack() as stack:
        for one in within:
            stack.enter_context(one)
        yield


def hidden_parameters(cell: Any) -> Iterator[Any]:
    """Yield the parameters that a cell keeps in a list or dict of its own, where MindSpore does not see them.

    Also those of cells kept so.
    """
    own = {name: value for name, value in vars(cell).items() if name not in machinery_of(nn.Cell)}
    for _, found in leaves(own, lambda value: isinstance(value, mindspore.Parameter | nn.Cell)):
        yield from (found,) if isinstance(found, mindspore.Parameter) else found.get_parameters()


def tidying(cells: Iterable[Any]) -> Callable[[], None]:
    """Return what takes the tables of hooks away again that cells do not have yet; MindSpore makes them on a call."""
    absent = [(vars(cell), name) for cell in cells for name in _tables() if vars(cell)[name] is None]

    def tidy() -> None:
        for attributes, name in absent:
            attributes[name] = attributes[name] or None

    return tidy


@contextmanager
def recorded_at_once(cells: Iterable[Any]) -> Iterator[None]:
    """Let cells that are to be recomputed record their gradients in the forward pass, as any other cell.

    Else the first run of the reentrant form is without gradients, and of the other what is computed again is not what
    was put in.
    """
    recomputed = [cell for cell in cells if cell._recompute_cell is not None]
    before = [vars(cell).get("_recompute_cell") for cell in recomputed]  # none where it counts as a cell's child
    for cell in recomputed:
        vars(cell)["_recompute_cell"] = None
    try:
        yield
    finally:
        for cell, own in zip(recomputed, before, strict=True):
            del vars(cell)["_recompute_cell"]
            if own is not None:
                vars(cell)["_recompute_cell"] = own


@cache
def _tables() -> tuple[str, ...]:
    return tuple(name for name in vars(nn.Cell()) if name.startswith("_lazy_") and "hook" in name)


class _Draws:
    times = 0
    turned_idly = 0


def drawn() -> tuple[int, ...]:
    """Return the generator's seed, how far what drew turned it, and how often primitives drew that seed themselves."""
    seed, *turned = array_of(mindspore.get_rng_state()).view(np.int64).tolist()
    return seed, sum(turned) - _Draws.turned_idly, _Draws.times


@contextmanager
def counting_draws() -> Iterator[None]:
    """Count within how often primitives draw random numbers; what is compiled may do so whenever it runs."""
    wrapped = {ops.Primitive: _draws, MINDSPORE.held["compiled"]: _draws_unseen, MINDSPORE.held["mint_dropout"]: _turns}
    with ExitStack() as stack:
        for cls, counts in wrapped.items():
            if cls is not None:
                stack.enter_context(replaced(cls, "__call__", _counted(cls.__call__, counts)))
        yield


def _counted(call: Callable[..., Any], counts: Callable[..., None]) -> Callable[..., Any]:
    @wraps(call)
    def called(one: Any, *args: Any, **kwargs: Any) -> Any:
        counts(one, *args)
        return call(one, *args, **kwargs)

    return called


def _draws(primitive: Any, *_: Any) -> None:
    """Count a primitive that takes a seed, has a hidden effect, as MindSpore calls that, or drops channels."""
    seeded = any(name.lower().startswith("seed") for name in primitive.init_attrs)
    draws = seeded or "side_effect_hidden" in primitive.attrs or "Dropout" in primitive.name
    _Draws.times += draws and primitive.init_attrs.get("keep_prob") != 1


def _draws_unseen(*_: Any) -> None:
    _Draws.times += 1


def _turns(_: Any, *given: Any) -> None:
    rate_and_training = given[1:3]
    _Draws.turned_idly += 0 if all(rate_and_training) else MINDSPORE.held["generator_step"] or 0


@contextmanager
def reseeded(cells: Iterable[Any]) -> Iterator[None]:
    """Let dropout cells draw from the global seed within; where none is set, from wherever they are.

    Such a cell seeds its generator once, when it is built, and goes on from there: in a run of its own it would never
    draw the same again.
    """
    with ExitStack() as stack:
        for cell in cells if mindspore.get_seed() is not None else ():
            for name, primitive in cell._primitives.items():
                if isinstance(primitive, ops.Dropout) and vars(cell).get(name) is primitive:
                    fresh = ops.Dropout(primitive.keep_prob, *_get_graph_seed(0, "dropout"))
                    stack.callback(vars(cell).__setitem__, name, primitive)
                    vars(cell)[name] = fresh
        yield
