"""Tell in which order of axes a candidate holds each of its values: (batch, time, features) or (time, batch, features).

The shapes leave few orders; of these the values of the free runs tell one, where both models hold the same. Where they
do not (equal extents of a symmetric value, a fault before it), the order follows from what is known of the same tensor,
of the call's other tensors, of the same call in another block, and of what stands beside it. A whole model that takes
its inputs in the reference's order owes its outputs in that order too.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence

import attrs

from padiff.alignment._leaves import partners, same_sort
from padiff.alignment._pairs import Alignment, Pair
from padiff.alignment._permutations import Axes, folds_between, orders_between
from padiff.kinds import LAYOUT, ORDER_SETTINGS
from padiff.numerics import ORDER, SAME, difference, epsilon_of, same_numbers, sample
from padiff.recording import Order, Orders
from padiff.trace import Call, Leaf, Trace, difference_in_any_order

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
    orders: tuple[Order, ...]
    read: bool = False
    """Whether what its layers say of it is heeded already."""
    likely: Order | None = None
    """One of them in which both are nearer to each other by far than in any other."""

    choice: bool = attrs.field(init=False, default=attrs.Factory(lambda value: len(value.orders) > 1, takes_self=True))
    """Whether its shape leaves several orders: else it says nothing of the others' orders."""

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
        return self.orders[0].plain

    @property
    def known(self) -> bool:
        """Return whether one order is left."""
        return len(self.orders) == 1


def axis_orders(alignment: Alignment, reference: Trace, candidate: Trace, read: Collection[Place] = ()) -> Orders:
    """Return how the candidate's tensors are to be read so that their axes are the reference's; some are so already."""
    owed = not all(trace.weights and trace.gradients and trace.start_seed is None for trace in (reference, candidate))
    owed = owed or any(map(_gives_another_shape, alignment.pairs))
    shaped = not owed or all(len(top.reference.outputs) == len(top.outputs) for top in alignment.tops)
    values = [value for pair in alignment.pairs for value in _values(pair, shaped=shaped, owed=owed)]
    tell = _Teller(reference, candidate)
    if all(value.plain and (value.known or tell.agrees(value)) for value in values) and not any(
        _order_of_settings(pair) for pair in alignment.pairs
    ):
        return {}
    for value in values:
        value.orders, value.likely = tell.orders(value)
        value.read = value.place in read
    given = [value for value in values if value.place[2] == "input"]
    near = {value.place[:2] for value in given if value.known and tell.is_near(value)}
    for value in given:
        if value.orders[-1].fold is not None and value.likely is None and not value.known and value.place[:2] in near:
            value.orders = value.orders[:1]  # what is given beside it is near: it is another thing
    _keep_root(alignment.pairs[0], values, owed=owed)
    _propagate(values)
    found = {value.place: value.orders[0] for value in values}
    found.update(_beside(alignment, values))
    return {place: order for place, order in found.items() if not order.plain}


def _gives_another_shape(pair: Pair) -> bool:
    """Return whether a module of no kind that calls no other gives another shape than its namesake: that names it."""
    both = pair.reference, pair.candidate
    made = zip(*(call.outputs for call in both), strict=False)
    plain = all(call.leaf and call.module.kind is None and not call.module.operation for call in both)
    return plain and any(not orders_between(ours.shape, theirs.shape) for ours, theirs in made)


def _values(pair: Pair, *, shaped: bool, owed: bool) -> Iterator[_Value]:
    """Yield the tensors of a matched call that may be the same but for the order of their axes."""
    call = pair.candidate
    shaped &= not owed or not (pair.reference.parent is None or pair.candidate.parent is None)
    for what, ours, theirs in (
        ("input", pair.reference.inputs, call.inputs),
        ("output", pair.reference.outputs, call.outputs),
    ):
        for i, j in partners(ours, theirs, lambda a, b: same_sort(a, b) and bool(_orders(a, b, shaped))):
            yield _Value((*call.key, what, j), pair, ours[i], theirs[j], _orders(ours[i], theirs[j], shaped))


def _orders(ours: Leaf, theirs: Leaf, shaped: bool) -> tuple[Order, ...]:
    """Return the orders in which one tensor may be the other; what the whole model gives is owed in its shape.

    Of as many elements in another shape, the first order is its own: that there is another is for values to tell. Where
    the whole model gives something in another shape, that may be why. A script that makes a loss of it is owed nothing.
    """
    turned = tuple(map(Order, orders_between(ours.shape, theirs.shape)))
    if turned or not shaped:
        return turned
    folds = folds_between(ours.shape, theirs.shape)
    return (Order(tuple(range(len(theirs.shape)))), *folds) if folds else ()


class _Teller:
    """Tell by the values of the free runs in which order a value is."""

    def __init__(self, reference: Trace, candidate: Trace) -> None:
        self._reference, self._candidate = reference, candidate
        self._known: dict[Hashable, tuple[tuple[Order, ...], Order | None]] = {}

    def agrees(self, value: _Value) -> bool:
        """Return whether both models hold the same, in the same order, as far as is known."""
        if value.ours.shape != value.orders[0].shape(value.theirs.shape):
            return False
        error = self._error(value, value.orders[0])
        return error is None or error <= SAME(epsilon_of(value.ours.dtype, value.theirs.dtype))

    def is_near(self, value: _Value) -> bool:
        """Return whether both hold nearly the same, in the only order that is left."""
        error = self._error(value, value.orders[0])
        return error is not None and error <= ORDER(0.0)

    def orders(self, value: _Value) -> tuple[tuple[Order, ...], Order | None]:
        """Return the orders that the values leave, those in which both are the same; and one that is far nearer."""
        if value.known:
            return value.orders, None
        key = (*value.tokens, value.ours.shape, value.theirs.shape)
        if key not in self._known:
            self._known[key] = self._left(value)
        return self._known[key]

    def _left(self, value: _Value) -> tuple[tuple[Order, ...], Order | None]:
        errors = {order: self._error(value, order) for order in value.orders}
        told = [(error, order) for order, error in errors.items() if error is not None]
        if value.orders[-1].fold is not None:
            told.append((1.0, value.orders[0]))  # as far apart as what has nothing to do with it
        ranked = sorted(told, key=lambda one: (one[0], one[1].axes))
        if not ranked:
            return value.orders, None
        bound = SAME(epsilon_of(value.ours.dtype, value.theirs.dtype))
        fits = tuple(order for error, order in ranked if error <= bound)
        if fits:
            return tuple(order for order in value.orders if order in fits), None
        if value.orders[-1].fold is not None and self._hold_alike(value):
            return value.orders[:1], None
        if len(ranked) == 1:  # of summaries, whose samples tell of one order alone
            other = tuple(order for order in value.orders if order != ranked[0][1])
            return other if self._in_some_order(value, bound) else value.orders, None
        (least, best), (second, _) = ranked[:2]
        if least <= ORDER(0.0) ** 4 * min(1.0, second):
            # Next to nothing of it is changed, and in any other order all.
            return (best,), None
        return value.orders, best if least <= ORDER(0.0) * min(1.0, second) else None

    def _error(self, value: _Value, order: Order) -> float | None:
        """Return how far apart both are, read in an order, as far as elements that are known on both sides tell."""
        if order.shape(value.theirs.shape) != value.ours.shape:
            return None
        ours, theirs = self._reference.value(value.ours), self._candidate.samples.get(value.theirs.token)
        if ours is None:
            ours = self._reference.samples.get(value.ours.token)
            if not order.plain:
                theirs = self._candidate.value(value.theirs)
                theirs = None if theirs is None else sample(order.read(theirs))
        elif ours.size:
            ours = sample(order.natively(ours))
        if ours is None or theirs is None or not ours.size:
            return None
        return difference(ours, theirs).rel_l2

    def _hold_alike(self, value: _Value) -> bool:
        """Return whether both hold the same elements, in whatever order, as far as is known."""
        ours, theirs = self._reference.value(value.ours), self._candidate.value(value.theirs)
        return ours is not None and theirs is not None and same_numbers(ours, theirs)

    def _in_some_order(self, value: _Value, bound: float) -> bool:
        """Return whether summaries say that both hold the same elements, in whatever order."""
        keys = self._reference.values.get(value.ours.token, 0), self._candidate.values.get(value.theirs.token, 0)
        ours, theirs = self._reference.summaries.get(keys[0]), self._candidate.summaries.get(keys[1])
        apart = None if ours is None or theirs is None else difference_in_any_order(ours, theirs)
        return apart is not None and apart <= bound


def _keep_root(root: Pair, values: Iterable[_Value], *, owed: bool) -> None:
    """Leave the whole model's outputs in the reference's order, unless its inputs are in another.

    A cache is another matter: what lies in containers of containers that each library builds in a form of its own is
    in an order of its own, too. So is what nobody is ``owed``, where its values tell another order.
    """
    ends = [value for value in values if value.pair is root and not _is_own_form(value)]
    if all(value.plain for value in ends if value.place[2] == "input"):
        for value in (one for one in ends if owed or any(order.plain for order in one.orders)):
            value.orders = (Order(tuple(range(value.rank))),)


def _is_own_form(value: _Value) -> bool:
    """Return whether an output lies deep in a container, which the other side builds otherwise, or which is a cache.

    That holds keys and values of each block: deeper than else, and two and two of one shape.
    """
    ours, theirs = value.ours.path, value.theirs.path
    if value.place[2] != "output" or min(len(_STEP.findall(path)) for path in (ours, theirs)) < 2:
        return False
    inside = ours[: ours.rindex(_STEP.findall(ours)[-1])]
    depth = len(_STEP.findall(ours)) + (ours[0] not in "[.")  # a name begins it, or none
    beside = Counter(leaf.shape for leaf in value.pair.reference.outputs if leaf.path.startswith(inside))
    return ours != theirs or (depth > 2 and not any(count % 2 for count in beside.values()))


def _propagate(values: Sequence[_Value]) -> None:
    """Settle what values leave open by what is known nearby: the nearest rule that tells anything, again and again."""
    index = 0
    while index < len(_RULES) and not all(value.known for value in values):
        index = 0 if _settled(values, _RULES[index]) else index + 1
    for value in values:
        value.orders = value.orders[:1]


def _settled(values: Sequence[_Value], rule: _Rule) -> bool:
    """Settle values by a rule; return whether it told anything."""
    known: dict[Hashable, Counter[Order]] = {}
    for value in values:
        if value.known and (value.choice or not value.plain):
            for key in rule.keys(value):
                known.setdefault(key, Counter())[value.orders[0]] += 1
    found = False
    for value in values:
        if not value.known:
            votes = sum((known.get(key, Counter()) for key in rule.keys(value)), Counter[Order]())
            told = [(votes[a], a == value.likely, -i) for i, a in enumerate(value.orders) if votes[a]]
            best = value.orders[-max(told)[-1]] if told else rule.own(value)
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


def _by_settings(value: _Value) -> Order | None:
    axes = _order_of_settings(value.pair)
    order = Order(tuple(range(value.rank)) if value.read else axes(value.rank)) if axes else None
    return order if order in value.orders else None


@attrs.frozen
class _Rule:
    """What settles values: others that share a key with them, or what they tell themselves."""

    keys: Callable[[_Value], Iterable[Hashable]] = lambda value: ()
    own: Callable[[_Value], Order | None] = lambda value: None
    singly: bool = False
    """Whether one value is settled at a time, and what follows from it comes first."""


_RULES = (
    _Rule(lambda v: [v.tokens]),
    _Rule(own=lambda v: _by_settings(v) if v.pair.reference.module.kind != v.pair.candidate.module.kind else None),
    _Rule(lambda v: [(v.pair, v.rank)] if v.pair.candidate.leaf and v.pair.candidate.module.kind else []),
    _Rule(own=lambda v: v.likely),
    _Rule(lambda v: [(v.pair, v.rank)] if v.pair.candidate.leaf else []),
    _Rule(lambda v: [(_place_in_block(v), v.rank)]),
    _Rule(_place_in_class),
    _Rule(lambda v: [(v.pair, v.rank)], singly=True),
    _Rule(lambda v: [(owner, v.rank) for owner in _owners(v)]),
    _Rule(own=_by_settings, singly=True),
    _Rule(lambda v: [] if v.plain else [v.rank]),
)
"""What settles the order of a value that its free runs leave open, the nearest first."""


def _order_of_settings(pair: Pair) -> Callable[[int], Axes] | None:
    """Return how settings that differ, or kinds, say that tensors of a rank are permuted."""
    last = [_has_channels_last(call) for call in (pair.reference, pair.candidate)]
    if None not in last and last[0] != last[1]:
        return lambda rank: (0, rank - 1, *range(1, rank - 1)) if last[1] else (0, *range(2, rank), 1)
    for name in ORDER_SETTINGS - {LAYOUT}:
        ours, theirs = (call.settings.get(name) for call in (pair.reference, pair.candidate))
        if ours is not None and theirs is not None and ours.value != theirs.value:
            return lambda rank: (1, 0, *range(2, rank))
    return None


def _has_channels_last(call: Call) -> bool | None:
    """Return whether a layer reads channels last, as one that is linear does; None where it may be either."""
    layout = call.settings.get(LAYOUT)
    return (call.module.kind == "linear" or None) if layout is None else str(layout.value) == "NHWC"


def _beside(alignment: Alignment, values: Sequence[_Value]) -> Iterator[tuple[Place, Order]]:
    """Yield how the tensors of calls without counterpart are permuted, where matched ones take or gave them."""
    known = {value.theirs.token: value.orders[0] for value in values}
    calls = sorted(alignment.left_candidate, key=lambda call: call.index)
    for call in (*calls, *reversed(calls)):
        read = {known[leaf.token] for leaf in (*call.inputs, *call.outputs) if leaf.token in known}
        for what, leaves in (("input", call.inputs), ("output", call.outputs)):
            for index, leaf in enumerate(leaves):
                fits = [x for x in read if x.fold is None and len(x.axes) == len(leaf.shape)] if call.leaf else []
                order = known.get(leaf.token) or (fits[0] if len(fits) == 1 else None)
                if order is not None:
                    known.setdefault(leaf.token, order)
                    yield (*call.key, what, index), order
