"""Hold the operations by which one call's own code makes a value, on one side, and what they took and gave."""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping

import attrs
import numpy as np
from numpy.typing import NDArray

from padiff.alignment import Pair
from padiff.forcing import Slotted
from padiff.numerics import Array
from padiff.paths import below, last
from padiff.trace import Call, Key, Leaf, as_called

CELLS = 1 << 25
"""Elements of all values of a code that is not looked into: 256 MiB."""
_MASKED = 1e3
"""How far below zero elements are taken for masked: -inf here, -1e9 there."""
_DEPTH = 3
"""Operations through which it is told what a tensor is."""
_FEW = 64
"""Elements that tell whether a value is more than a mask."""
_AXES = 5
"""Axes up to which a value is looked for in another order of them."""


@attrs.frozen
class Code:
    """The calls without counterpart in one call's own code, in execution order."""

    calls: tuple[Call, ...]
    makers: Mapping[int, Call]
    """Token -> the call of these that gives the tensor."""
    target: int
    """The token of the value that they make."""
    leading: frozenset[int]
    """The tensors of which it is made."""
    names: Mapping[int, str]
    """What comes from outside of the code, from what it is given and from calls with a counterpart: what that is."""
    fed: frozenset[int]
    """What of this is the reference's: not what a call gives that its counterpart does not."""
    giver: Call | None
    """The first call inside that gives the value, whether it has a counterpart or not."""

    @classmethod
    def of(cls, top: Call, matched: Callable[[Call], Pair | None], target: Leaf) -> Code:
        """Return the calls in a call's own code, which makes a tensor."""
        calls = tuple(_inside(top, matched))
        makers = {leaf.token: call for call in reversed(calls) for leaf in call.outputs}
        names = {leaf.token: f"the input {leaf.path}" for leaf in top.inputs}
        fed = {*names}
        for call in top.subtree():
            name = f"the output of {below(call.path, top.path)}"
            pair = None if call is top else matched(call)
            if pair is not None:
                names |= {leaf.token: name for leaf in call.outputs}
                tied = {at[call is not pair.reference] for at in pair.outputs}
                fed |= {leaf.token for index, leaf in enumerate(call.outputs) if index in tied}
        names = {token: name for token, name in names.items() if token not in makers}
        inside = (call for call in top.subtree() if call is not top)
        giver = next((call for call in inside if target.token in (leaf.token for leaf in call.outputs)), None)
        leading = _leading(target.token, makers)
        return cls(calls, makers, target.token, leading, names, frozenset(fed & names.keys()), giver)

    def is_constant(self, token: int) -> bool:
        """Return whether a tensor is made of nothing that the call is given."""
        return token not in self.makers and token not in self.names

    def name_of(self, token: int, depth: int = _DEPTH, *, full: bool = False) -> str:
        """Return what a tensor is in words: what it is made of, where that is one tensor; ``full``: with arguments."""
        maker = self.makers.get(token)
        if maker is None:
            return self.names.get(token, "a constant")
        name, given = last(maker.path), {leaf.token for leaf in maker.inputs}
        name = as_called(maker).removesuffix("(_)") if full and len(given) == 1 else name
        if len(maker.outputs) > 1:
            name += f"[{[leaf.token for leaf in maker.outputs].index(token)}]"
        if len(given) > 1 or not given or not depth:
            return f"what {name} gives"
        return f"{name} of {self.name_of(next(iter(given)), depth - 1, full=full)}"

    @property
    def keys(self) -> list[Key]:
        """Return what names its calls."""
        return [call.key for call in self.calls]

    def leaves(self) -> Iterator[Leaf]:
        """Yield what its calls take and give, each tensor once."""
        return iter({leaf.token: leaf for call in self.calls for leaf in (*call.inputs, *call.outputs)}.values())

    def values(
        self,
        shown: Mapping[Slotted, Array],
        put: Mapping[Slotted, Array] | None = None,
        before: Mapping[int, Value] | None = None,
    ) -> dict[int, Value]:
        """Return what tensors hold, of which calls showed what they take and give before some was ``put`` in.

        What they hold as ``before`` is not measured again.
        """
        found: dict[int, Value] = {}
        put = put or {}
        for call in self.calls:
            for what in ("input", "output"):
                for index, leaf in enumerate(call.leaves(what)):
                    key = (call.key, what, index)
                    array = put.get(key, shown.get(key)) if what == "output" else shown.get(key)
                    if array is not None and leaf.token not in found:
                        known = (before or {}).get(leaf.token)
                        same = known is not None and np.array_equal(known.array, array)
                        found[leaf.token] = known if known is not None and same else Value.of(array)
        return found

    def region(self, token: int, known: Collection[int], most: int) -> tuple[Call, ...] | None:
        """Return the calls that make a tensor from what is known; None where these are more than some."""
        found, open_tokens = {}, [token]
        while open_tokens:
            call = self.makers.get(open_tokens.pop())
            if call is not None and call.index not in found:
                found[call.index] = call
                if len(found) > most:
                    return None
                open_tokens += [leaf.token for leaf in call.inputs if leaf.token not in known]
        return tuple(found[index] for index in sorted(found))

    def again(self, call: Call) -> list[Call]:
        """Return the calls of one operation by one line, among them a call: the rounds of a loop."""
        return [one for one in self.calls if _kind(one) == _kind(call)]

    def in_rounds(self, call: Call) -> list[Call]:
        """Return what is a call in each of the rounds of its line, of which each may call the same several times."""
        again, rounds = self.again(call), self.rounds(call)
        times, over = divmod(len(again), rounds)
        return [] if over else again[again.index(call) % times :: times]

    def rounds(self, call: Call) -> int:
        """Return how often the line ran that makes a call."""
        line = Counter(_kind(one) for one in self.calls if one.frames[:1] == call.frames[:1])
        return min(line.values())


def _leading(target: int, makers: Mapping[int, Call]) -> frozenset[int]:
    found, left = {target}, [target]
    while left:
        call = makers.get(left.pop())
        more = set() if call is None else {leaf.token for leaf in call.inputs} - found
        found |= more
        left += more
    return frozenset(found)


def _kind(call: Call) -> object:
    return call.path, call.frames[:1], len(call.inputs)


def given_to(region: Collection[Call]) -> set[int]:
    """Return the tensors that some calls take from elsewhere."""
    made = {leaf.token for call in region for leaf in call.outputs}
    return {leaf.token for call in region for leaf in call.inputs} - made


@attrs.frozen(eq=False)
class Value:
    """What a tensor holds: as it is, and as it is compared."""

    array: Array
    plain: NDArray[np.float64]
    """In float64; what masks is one number, whatever it is, and of a mask's two numbers the rarer one is 1."""
    figures: tuple[float, float, float]
    both: tuple[float, float] | None = None
    """Of two numbers, of which one is 0 or masks, what the commoner one is, and the rarer."""

    @classmethod
    def of(cls, array: Array) -> Value:
        """Return the value of an array."""
        plain = np.array(array.real + 2**0.5 * array.imag if array.dtype.kind == "c" else array, np.float64)
        masked = ~(plain > -_MASKED)
        if masked.any():
            plain[masked] = -1 - 2 * np.abs(plain[~masked]).max(initial=0)
        both = _two_of(plain)
        if both is not None and (0.0 in both or masked.any()):
            first = array.reshape(-1)[np.flatnonzero(plain.reshape(-1) == both[0])[0]]
            rarer = array.reshape(-1)[np.flatnonzero(plain.reshape(-1) == both[1])[0]]
            plain = (plain == both[1]).astype(np.float64)
            both = float(first), float(rarer)
        else:
            both = None
        with np.errstate(all="ignore"):
            flat = plain.reshape(-1)
            figures = float(np.linalg.norm(flat)), float(flat.sum()), float(np.dot(flat * flat, flat))
        return cls(array, plain, figures, both)

    def is_same(self, other: Value, bound: float) -> bool:
        """Return whether another holds the same elements, with its axes in whatever order."""
        size, count = max(self.figures[0], other.figures[0]), self.plain.size
        if count != other.plain.size or not np.isfinite(size) or (self.both is None) != (other.both is None):
            return False
        bounds = bound * size, 4 * bound * size * count**0.5, 4 * bound * size**3
        pairs = zip(self.figures, other.figures, bounds, strict=True)
        if any(abs(ours - theirs) > most for ours, theirs, most in pairs):
            return False
        ways = ((self, other), (other, self))
        readings = ((one, reading) for one, two in ways for reading in two.arranged(one.plain.shape, loose=True))
        return any(_is_near(one.plain, reading, bound * size) for one, reading in readings)

    @property
    def tells(self) -> bool:
        """Return whether it is no constant, nor a mask: of those any two are soon the same."""
        return self.both is None and self.plain.size > 1 and bool(np.ptp(self.plain))

    def is_same_there(self, other: Value, bound: float, *, ones: bool = True) -> bool:
        """Return whether another has its shape, and holds the same element by element; ``ones``: axes of one count."""
        if self.array.shape != other.array.shape if ones else self.array.size != other.array.size:
            return False
        return float(np.linalg.norm(self.plain.ravel() - other.plain.ravel())) <= bound * self.figures[0]

    def arranged(self, shape: tuple[int, ...], *, loose: bool = False) -> Iterator[NDArray[np.float64]]:
        """Yield it in the orders of its axes that have a shape; or ``loose``, in all that can be read so."""
        return (one.reshape(shape) for one in _arranged(self.plain, shape, loose=loose))

    def turned_as(self, one: Value, other: Value, bound: float) -> Value:
        """Return it with its axes in the order in which another value has those of the same value here."""
        axes = range(one.array.ndim)
        orders = itertools.permutations(axes) if self.array.ndim == one.array.ndim <= _AXES else iter(())
        fits = (
            order
            for order in orders
            if one.plain.transpose(order).shape == other.plain.shape
            and float(np.linalg.norm(one.plain.transpose(order) - other.plain)) <= bound * one.figures[0]
        )
        order = next(fits, None)
        return self if order is None else Value.of(self.array.transpose(order))

    def in_place_of(self, other: Value) -> Iterator[NDArray[np.float64]]:
        """Yield arrays that hold it in the shape of another value; of two numbers, in that one's, both ways."""
        shape = other.array.shape
        if self.array.size != other.array.size:
            yield self.array
        elif self.both is not None and other.both is not None:
            for one, two in (other.both, other.both[::-1]):
                yield from (np.where(reading == 1, two, one) for reading in self.arranged(shape))
        elif self.array.shape == shape:
            yield self.array
            yield from itertools.islice(self._read(shape), 1, None)
        else:
            yield from self._read(shape)

    def _read(self, shape: tuple[int, ...]) -> Iterator[Array]:
        yield from (one.reshape(shape) for one in _arranged(self.array, shape, loose=False))
        # Where it has in one axis what the shape has in several, these may lie in another order.
        places = np.arange(self.array.size).reshape(shape)
        for one in _arranged(places, self.array.shape, loose=False):
            yield self.array.reshape(-1)[np.argsort(one, axis=None)].reshape(shape)


def _is_near(one: NDArray[np.float64], other: NDArray[np.float64], most: float) -> bool:
    """Return whether two arrays of one shape are no further apart than that; a few elements are looked at first."""
    few = np.fromiter(one.flat, np.float64, min(_FEW, one.size)) - np.fromiter(
        other.flat, np.float64, min(_FEW, one.size)
    )
    return float(np.linalg.norm(few)) <= most and float(np.linalg.norm(one - other)) <= most


def _two_of(plain: NDArray[np.float64]) -> tuple[float, float] | None:
    """Return the two numbers of which an array consists, the commoner one first; None where it holds others."""
    few = np.unique(plain.reshape(-1)[:_FEW])
    if few.size > 2:
        return None
    numbers, counts = np.unique(plain, return_counts=True)
    if numbers.size != 2:
        return None
    first = int(counts[1] > counts[0]) if counts[0] != counts[1] else int(plain.reshape(-1)[0] == numbers[1])
    return float(numbers[first]), float(numbers[1 - first])


def _arranged(array: Array, shape: tuple[int, ...], *, loose: bool) -> Iterator[Array]:
    own, wanted = array.squeeze(), tuple(extent for extent in shape if extent != 1)
    orders = itertools.permutations(range(own.ndim)) if own.ndim <= _AXES else [tuple(range(own.ndim))]
    nearest = sorted(orders, key=lambda order: sum(axis != place for place, axis in enumerate(order)))
    shapes = [(order, tuple(own.shape[axis] for axis in order)) for order in nearest]
    fits = [order for order, had in shapes if had == wanted]
    if loose or not fits:
        fits += [order for order, had in shapes if had != wanted and _is_read_so(had, wanted)]
    return (own.transpose(order) for order in fits)


def _is_read_so(shape: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Return whether one shape is the other with some neighbouring axes in one: no axis is cut and pieced together."""
    ends, others = ({*itertools.accumulate(one, int.__mul__)} for one in (shape, other))
    return ends <= others or others <= ends


class Known:
    """Values, found by what they hold: a loop that settles gives one again and again."""

    def __init__(self, values: Mapping[int, Value], bound: float) -> None:
        self._bound = bound
        self._sizes: list[float] = []
        self._alike: list[tuple[Value, list[int]]] = []
        """Values that are not the same, by size, each with the tokens of those that are."""
        for token, value in sorted(values.items(), key=lambda item: item[1].figures[0]):
            known = next(self._near(value), None)
            if known is None:
                self._sizes.append(value.figures[0])
                self._alike.append((value, [token]))
            else:
                known.append(token)

    def same(self, value: Value) -> list[int]:
        """Return the tokens of the values that hold the same."""
        return [token for tokens in self._near(value) for token in tokens]

    def _near(self, value: Value) -> Iterator[list[int]]:
        size = value.figures[0]
        first = bisect_left(self._sizes, size * (1 - 2 * self._bound))
        last = bisect_right(self._sizes, size * (1 + 2 * self._bound))
        return (tokens for one, tokens in self._alike[first:last] if value.is_same(one, self._bound))


def _inside(top: Call, matched: Callable[[Call], Pair | None]) -> Iterator[Call]:
    """Yield the calls without counterpart in a call's own code whose operations, if they have some, are not seen.

    A framework's own module may call others, and give what none of these does: a layer whose weight another one makes.
    What only hands on what it is given (an identity) makes nothing.
    """
    for child in top.children:
        if matched(child) is None:
            within = itertools.chain(child.inputs, *(one.outputs for one in child.subtree() if one is not child))
            seen = {leaf.token for leaf in within}
            if not seen.issuperset(leaf.token for leaf in child.outputs):
                yield child
            if not child.module.operation:
                yield from _inside(child, matched)
