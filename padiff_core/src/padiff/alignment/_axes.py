"""Tell in which order of axes a candidate holds each of its values: (batch, time, features) or (time, batch, features).

The shapes leave few orders; of these the values of the free runs tell one, where both models hold the same. Where they
do not (equal extents of a symmetric value, a fault before it), the order follows from what is known of the same tensor,
of the call's other tensors, of the same call in another block, and of what stands beside it. A whole model that takes
its inputs in the reference's order owes its outputs in that order too.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import cache

import attrs
import numpy as np

from padiff.alignment._pairs import Alignment, Pair, partners, same_sort
from padiff.kinds import LAYOUT, ORDER_SETTINGS
from padiff.numerics import ORDER, SAME, difference, epsilon_of, sample
from padiff.recording import Order, Orders
from padiff.trace import Call, Leaf, Trace, difference_in_any_order

Axes = tuple[int, ...]
Place = tuple[str, int, str, int]


_STEP = re.compile(r"\[[^\]]*\]|\.\w+")
"""A step into a container: a key, an index, an attribute."""


@attrs.define(eq=False)
class _Value:
    """A value of the candidate at one place, the one of the reference that it stands for, and in which order it may be.

    ``orders`` are those that nothing rules out yet, the likeliest first.
    """

    place: Place
    pair: Pair
    ours: Leaf
    theirs: Leaf
    orders: tuple[Axes, ...]
    likely: Axes | None = None
    """One of them in which both are nearer to each other by far than in any other."""

    choice: bool = attrs.field(init=False)
    """Whether its shape leaves several orders: else it says nothing of the others' orders."""

    def __attrs_post_init__(self) -> None:
        self.choice = len(self.orders) > 1

    @property
    def tokens(self) -> tuple[int, int]:
        """Return what names the two tensors."""
        return self.ours.token, self.theirs.token

    @property
    def rank(self) -> int:
        """Return how many axes it has."""
        return len(self.theirs.shape)

    @property
    def plain(self) -> bool:
        """Return whether it may be in the reference's order."""
        return _is_plain(self.orders[0])

    @property
    def known(self) -> bool:
        """Return whether one order is left."""
        return len(self.orders) == 1


def axis_orders(alignment: Alignment, reference: Trace, candidate: Trace) -> Orders:
    """Return how the candidate's tensors are to be read so that their axes are the reference's."""
    values = [value for pair in alignment.pairs for value in _values(pair)]
    tell = _Teller(reference, candidate)
    if all(value.plain and (value.known or tell.agrees(value)) for value in values) and not any(
        _order_of_settings(pair) for pair in alignment.pairs
    ):
        return {}
    for value in values:
        value.orders, value.likely = tell.orders(value)
    _keep_root(alignment.pairs[0], values)
    _propagate(values)
    found = {value.place: value.orders[0] for value in values}
    found.update(_beside(alignment, values))
    return {place: Order(axes) for place, axes in found.items() if not _is_plain(axes)}


def _is_plain(axes: Axes) -> bool:
    return axes == tuple(range(len(axes)))


def _values(pair: Pair) -> Iterator[_Value]:
    """Yield the tensors of a matched call that may be the same but for the order of their axes."""
    call = pair.candidate
    for what, ours, theirs in (
        ("input", pair.reference.inputs, call.inputs),
        ("output", pair.reference.outputs, call.outputs),
    ):
        for i, j in partners(ours, theirs, _may_be_turned):
            orders = orders_between(ours[i].shape, theirs[j].shape)
            yield _Value((*call.key, what, j), pair, ours[i], theirs[j], orders)


@cache
def orders_between(ours: tuple[int, ...], theirs: tuple[int, ...]) -> tuple[Axes, ...]:
    """Return the permutations that take one shape to the other, those first that move the fewest axes past others.

    Axes of extent 1 stay in their order among themselves: moving them past each other changes nothing.
    """
    if sorted(ours) != sorted(theirs):
        return ()
    found: list[Axes] = [()]
    for extent in ours:
        found = [
            (*begun, axis)
            for begun in found
            for axis, other in enumerate(theirs)
            if other == extent and axis not in begun and (extent != 1 or all(theirs[a] != 1 or a < axis for a in begun))
        ]
    return tuple(sorted(found, key=_inversions))


def _may_be_turned(a: Leaf, b: Leaf) -> bool:
    return same_sort(a, b) and bool(orders_between(a.shape, b.shape))


def _inversions(axes: Axes) -> tuple[int, Axes]:
    return sum(a > b for i, a in enumerate(axes) for b in axes[i + 1 :]), axes


class _Teller:
    """Tell by the values of the free runs in which order a value is."""

    def __init__(self, reference: Trace, candidate: Trace) -> None:
        self._reference, self._candidate = reference, candidate
        self._known: dict[Hashable, tuple[tuple[Axes, ...], Axes | None]] = {}

    def agrees(self, value: _Value) -> bool:
        """Return whether both models hold the same, in the same order, as far as is known."""
        error = self._error(value, value.orders[0])
        return error is None or error <= SAME(epsilon_of(value.ours.dtype, value.theirs.dtype))

    def orders(self, value: _Value) -> tuple[tuple[Axes, ...], Axes | None]:
        """Return the orders that the values leave, those in which both are the same; and one that is far nearer."""
        if value.known:
            return value.orders, None
        key = (*value.tokens, value.ours.shape, value.theirs.shape)
        if key not in self._known:
            self._known[key] = self._left(value)
        return self._known[key]

    def _left(self, value: _Value) -> tuple[tuple[Axes, ...], Axes | None]:
        errors = {axes: self._error(value, axes) for axes in value.orders}
        ranked = sorted((error, axes) for axes, error in errors.items() if error is not None)
        if not ranked:
            return value.orders, None
        bound = SAME(epsilon_of(value.ours.dtype, value.theirs.dtype))
        fits = tuple(axes for error, axes in ranked if error <= bound)
        if fits:
            return tuple(axes for axes in value.orders if axes in fits), None
        if len(ranked) == 1:  # of summaries, whose samples tell of one order alone
            other = tuple(axes for axes in value.orders if axes != ranked[0][1])
            return other if self._in_some_order(value, bound) else value.orders, None
        (least, best), (second, _) = ranked[:2]
        if least <= ORDER(0.0) ** 4 * min(1.0, second):
            # Next to nothing of it is changed, and in any other order all.
            return (best,), None
        return value.orders, best if least <= ORDER(0.0) * min(1.0, second) else None

    def _error(self, value: _Value, axes: Axes) -> float | None:
        """Return how far apart both are, read in an order, as far as elements that are known on both sides tell."""
        ours, theirs = self._reference.value(value.ours), self._candidate.samples.get(value.theirs.token)
        if ours is None:
            ours = self._reference.samples.get(value.ours.token)
            if not _is_plain(axes):
                theirs = self._candidate.value(value.theirs)
                theirs = None if theirs is None else sample(theirs.transpose(axes))
        elif ours.size:
            ours = sample(ours.transpose(np.argsort(axes)))
        if ours is None or theirs is None or not ours.size:
            return None
        return difference(ours, theirs).rel_l2

    def _in_some_order(self, value: _Value, bound: float) -> bool:
        """Return whether summaries say that both hold the same elements, in whatever order."""
        keys = self._reference.values.get(value.ours.token, 0), self._candidate.values.get(value.theirs.token, 0)
        ours, theirs = self._reference.summaries.get(keys[0]), self._candidate.summaries.get(keys[1])
        apart = None if ours is None or theirs is None else difference_in_any_order(ours, theirs)
        return apart is not None and apart <= bound


def _keep_root(root: Pair, values: Iterable[_Value]) -> None:
    """Leave the whole model's outputs in the reference's order, unless its inputs are in another.

    A cache is another matter: what lies in containers of containers that each library builds in a form of its own is
    in an order of its own, too.
    """
    ends = [value for value in values if value.pair is root and not _is_own_form(value)]
    if all(value.plain for value in ends if value.place[2] == "input"):
        for value in ends:
            value.orders = (tuple(range(value.rank)),)


def _is_own_form(value: _Value) -> bool:
    """Return whether an output lies deep in a container, which the other side builds otherwise."""
    paths = value.ours.path, value.theirs.path
    return value.place[2] == "output" and paths[0] != paths[1] and all(len(_STEP.findall(path)) > 1 for path in paths)


def _propagate(values: Sequence[_Value]) -> None:
    """Settle what values leave open by what is known nearby: the nearest rule that tells anything, again and again."""
    index = 0
    while index < len(_RULES) and not all(value.known for value in values):
        index = 0 if _settled(values, _RULES[index]) else index + 1
    for value in values:
        value.orders = value.orders[:1]


def _settled(values: Sequence[_Value], rule: _Rule) -> bool:
    """Settle values by a rule; return whether it told anything."""
    known: dict[Hashable, Counter[Axes]] = {}
    for value in values:
        if value.known and value.choice:
            for key in rule.keys(value):
                known.setdefault(key, Counter())[value.orders[0]] += 1
    found = False
    for value in values:
        if not value.known:
            votes = sum((known.get(key, Counter()) for key in rule.keys(value)), Counter[Axes]())
            told = [(votes[a], a == value.likely, -i, a) for i, a in enumerate(value.orders) if votes[a]]
            best = max(told)[-1] if told else None
            best = best or rule.own(value)
            if best is not None:
                value.orders, found = (best,), True
                if rule.singly:
                    return True
    return found


def _place_in_block(value: _Value) -> tuple[str, str, int]:
    """Return what the same tensor of a repeated block, or of another call of the module, has in common."""
    path, _, what, index = value.place
    return re.sub(r"\d+", "*", path), what, index


def _place_in_class(value: _Value) -> list[tuple[Hashable, ...]]:
    """Return what the same tensor has in common in other modules of the class around it, wherever these lie."""
    call, (path, _, what, index) = value.pair.candidate, value.place
    parent = call.parent
    if parent is None or parent.module.definition is None:
        return []
    inside = re.sub(r"\d+", "*", path.removeprefix(parent.path))
    return [(parent.module.class_name, parent.module.definition, inside, what, index, value.rank)]


def _owners(value: _Value) -> list[Call]:
    """Return the calls whose own code holds a value: the parent, and of a composite its own."""
    call = value.pair.candidate
    return [one for one in (call.parent, None if call.leaf else call) if one is not None]


def _by_settings(value: _Value) -> Axes | None:
    order = _order_of_settings(value.pair)
    axes = order(len(value.theirs.shape)) if order else None
    return axes if axes in value.orders else None


@attrs.frozen
class _Rule:
    """What settles values: others that share a key with them, or what they tell themselves."""

    keys: Callable[[_Value], Iterable[Hashable]] = lambda value: ()
    own: Callable[[_Value], Axes | None] = lambda value: None
    singly: bool = False
    """Whether one value is settled at a time, and what follows from it comes first."""


_RULES = (
    _Rule(lambda v: [v.tokens]),
    _Rule(lambda v: [(v.pair, v.rank)] if v.pair.candidate.leaf and v.pair.candidate.module.kind else []),
    _Rule(own=lambda v: v.likely),
    _Rule(lambda v: [(v.pair, v.rank)] if v.pair.candidate.leaf else []),
    _Rule(lambda v: [(_place_in_block(v), v.rank)]),
    _Rule(_place_in_class),
    _Rule(lambda v: [(v.pair, v.rank)]),
    _Rule(lambda v: [(owner, v.rank) for owner in _owners(v)]),
    _Rule(own=_by_settings, singly=True),
    _Rule(lambda v: [] if v.plain else [v.rank]),
)
"""What settles the order of a value that its free runs leave open, the nearest first."""


def _order_of_settings(pair: Pair) -> Callable[[int], Axes] | None:
    """Return how settings that differ say that tensors of a rank are permuted."""
    for name in ORDER_SETTINGS:
        ours, theirs = (call.settings.get(name) for call in (pair.reference, pair.candidate))
        if ours is not None and theirs is not None and ours.value != theirs.value:
            if name != LAYOUT:
                return lambda rank: (1, 0, *range(2, rank))
            last = str(theirs.value) == "NHWC"
            return lambda rank: (0, rank - 1, *range(1, rank - 1)) if last else (0, *range(2, rank), 1)
    return None


def _beside(alignment: Alignment, values: Sequence[_Value]) -> Iterator[tuple[Place, Axes]]:
    """Yield how the tensors of calls without counterpart are permuted, where matched ones take or gave them."""
    known = {value.theirs.token: value.orders[0] for value in values}
    calls = sorted(alignment.left_candidate, key=lambda call: call.index)
    for call in (*calls, *reversed(calls)):
        axes = {known[leaf.token] for leaf in (*call.inputs, *call.outputs) if leaf.token in known}
        for what, leaves in (("input", call.inputs), ("output", call.outputs)):
            for index, leaf in enumerate(leaves):
                fits = [one for one in axes if len(one) == len(leaf.shape)] if call.leaf else []
                order = known.get(leaf.token) or (fits[0] if len(fits) == 1 else None)
                if order is not None:
                    known.setdefault(leaf.token, order)
                    yield (*call.key, what, index), order
