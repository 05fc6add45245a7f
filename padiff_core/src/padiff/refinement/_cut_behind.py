"""Tell whether what a call gives in another shape is what the other side's own code cuts to it, right behind."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

from padiff.alignment import Pair, orders_between
from padiff.judging import Judge
from padiff.numerics import ROUNDING, Array, difference, epsilon_of
from padiff.trace import Call, Leaf, Trace

_NEAR = 4
"""Values behind a call that are looked at for what its match gives."""


def is_cut_behind(pair: Pair, judge: Judge, trace: Trace) -> bool:
    """Return whether what one side gives in another shape is, value for value, what the other makes right behind it.

    A convolution pads on both sides, and a module behind it takes away what is too much. Where the code around is wrong
    as well, nothing else shows that the two calls end at different points.
    """
    around = judge.alignment.around(pair)
    if around is None or len(pair.misfits) != 1:
        return False
    ((i, j),) = pair.misfits
    truth, local = trace.value(pair.reference.outputs[i]), _shown(pair, [pair.candidate], judge).get((*pair.key, j))
    if truth is None or local is None:
        return False
    ours = map(trace.value, made_behind(pair.reference, local.shape, trace, turned=True))
    return _is_among(local, ours) or _is_among(truth, _made_behind(pair, around, judge))


def made_behind(call: Call, shape: tuple[int, ...], trace: Trace, *, turned: bool = False) -> Iterator[Leaf]:
    """Yield the first tensors of a shape that a call's run meets behind it; or with the same axes in another order."""
    return itertools.islice((leaf for leaf in _met(call, trace) if _has(leaf, shape, turned)), _NEAR)


def _has(leaf: Leaf, shape: tuple[int, ...], turned: bool) -> bool:
    return sorted(leaf.shape) == sorted(shape) if turned else leaf.shape == shape


def _met(call: Call, trace: Trace) -> Iterator[Leaf]:
    """Yield the tensors that a call's run meets behind it for the first time, once each."""
    last = max(one.index for one in call.subtree())
    known = {leaf.token for one in trace.calls if one.index <= last for leaf in one.inputs}
    known |= {leaf.token for one in call.subtree() for leaf in one.outputs}
    behind = (one for one in trace.calls if one.index > last)
    met = itertools.chain.from_iterable((*one.inputs, *one.outputs) for one in behind)
    around = (leaf for one in call.ancestors() for leaf in one.outputs)
    for leaf in itertools.chain(met, around):
        if leaf.token not in known:
            known.add(leaf.token)
            yield leaf


def _made_behind(pair: Pair, around: Pair, judge: Judge) -> Iterator[Array]:
    """Yield what the candidate's code around a call makes right behind it."""
    behind = (one for one in around.candidate.children if one.index > pair.candidate.index)
    calls = [*itertools.islice(behind, _NEAR)]
    yield from _shown(around, calls, judge).values() if calls else ()


def _shown(pair: Pair, calls: Sequence[Call], judge: Judge) -> dict[tuple[str, int, int], Array]:
    """Return what calls of the candidate give where a pair's runs by itself, by path, ordinal and index."""
    condition = {"backward": False, "shown": tuple(call.key for call in calls)}
    run = judge.settler.replays.of_side(pair, False, condition)
    shown = {} if run is None else run.shown
    return {(*key, index): value for (key, what, index), value in shown.items() if what == "output"}


def _is_among(value: Array, made: Iterable[Array | None]) -> bool:
    """Return whether a value is one of some, in whatever order its axes lie."""
    bound = ROUNDING(epsilon_of(value.dtype.name))
    read = (one.transpose(axes) for one in made if one is not None for axes in orders_between(value.shape, one.shape))
    return any(difference(one, value).rel_l2 <= bound for one in read)
