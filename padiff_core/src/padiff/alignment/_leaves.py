"""Match the tensors of two calls, as these take and give them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cache, lru_cache

from padiff.trace import Leaf

_NAME = re.compile(r"""\[(?:'[^']*'|"[^"]*")\]|\.\w+""")


def pair_leaves(
    reference: Sequence[Leaf],
    candidate: Sequence[Leaf],
    same: Callable[[Leaf, Leaf], bool],
    taken: tuple[Collection[int], Collection[int]] = ((), ()),
    *,
    of_one_kind: bool = False,
    by_place: bool = True,
) -> tuple[tuple[int, int], ...]:
    """Match the tensors of two calls: by path where it fits, then what holds the same, then in order.

    What a call makes is first matched with what the other makes, not with what it has ``taken`` and only hands on.
    What layers ``of_one_kind`` take at one place is one thing, under whatever names: values that agree may do so since
    states were copied into each other's place. Not ``by_place`` is what a whole and a part of one give: a position in
    the one is none in the other.

    Sort of dtype and shape must agree. What both sides know by one name (a key, an attribute) is nothing else: two keys
    exchanged are no match. Positions below a name are positions still.
    """
    named = {_name(leaf) for leaf in reference} & {_name(leaf) for leaf in candidate} - {""}
    # A tensor that is given twice (a cell's output and its first state) is tied to one tensor alone, where it may be.
    tied: dict[tuple[int, int], int] = {}

    def fits(ours: Leaf, theirs: Leaf) -> bool:
        known = _name(ours) == _name(theirs) or not named & {_name(ours), _name(theirs)}
        return known and ours.shape == theirs.shape and same_sort(ours, theirs)

    def may_be(ours: Leaf, theirs: Leaf) -> bool:
        a, b = ours.token, theirs.token
        return tied.get((0, a), b) == b and tied.get((1, b), a) == a and fits(ours, theirs)

    # As many numbers in another shape may be the same value in another order of axes: what is there has its place.
    sides = zip(reference, candidate, strict=False) if len(reference) == len(candidate) else ()
    placed = {id(a): b for a, b in sides if math.prod(a.shape) == math.prod(b.shape) and same_sort(a, b)}

    def guessed(ours: Leaf, theirs: Leaf) -> bool:
        return may_be(ours, theirs) and placed.get(id(ours), theirs).shape == theirs.shape

    def at_home(ours: Leaf, theirs: Leaf) -> bool:
        return fits(ours, theirs) and ours.path == theirs.path

    # Where containers nest otherwise ((h, c), m) for (h, c, m), one position is not the other, but below a name.
    alike = by_place and all(a == b for a, b in zip(_depths(reference), _depths(candidate), strict=False))
    nested = {one for one in named if by_place and _depths(reference, one) == _depths(candidate, one)}
    both = {leaf.path for leaf in reference} & {leaf.path for leaf in candidate}

    def at_one_place(ours: Leaf, theirs: Leaf) -> bool:
        return placed.get(id(ours)) is theirs and fits(ours, theirs) and both.isdisjoint((ours.path, theirs.path))

    rules = (
        lambda ours, theirs: at_home(ours, theirs) and (alike or _name(ours) in nested or not ours.path.endswith("]")),
        *((at_one_place,) if of_one_kind and alike else ()),
        lambda ours, theirs: may_be(ours, theirs) and same(ours, theirs),
        *((at_home,) if by_place and len(reference) != len(candidate) else ()),
        lambda ours, theirs: guessed(ours, theirs) and (ours.token in taken[0]) == (theirs.token in taken[1]),
        guessed,
        *(() if any(taken) else (fits,)),  # a candidate that gives one where the reference gives two gives one wrongly
    )
    found: list[tuple[int, int]] = []
    for i, j in _by_rules(reference, candidate, rules):
        found.append((i, j))
        tied.setdefault((0, reference[i].token), candidate[j].token)
        tied.setdefault((1, candidate[j].token), reference[i].token)
    return tuple(sorted(found))


def with_repeated(
    reference: Sequence[Leaf], candidate: Sequence[Leaf], tied: Sequence[tuple[int, int]]
) -> tuple[tuple[int, int], ...]:
    """Return matched inputs, and with each what a candidate gives a second time where the reference gives it once.

    One tensor holds one value: where an attention takes queries and memory, and is given the same, both are what the
    reference's takes. What is left on the reference's side says that something else belongs there.
    """
    left = set(range(len(candidate))) - {j for _, j in tied}
    if not left or len({i for i, _ in tied}) < len(reference):
        return tuple(tied)
    partner = {candidate[j].token: i for i, j in tied}
    return tuple(sorted([*tied, *((partner[candidate[j].token], j) for j in left if candidate[j].token in partner)]))


def partners(
    ours: Sequence[Leaf], theirs: Sequence[Leaf], fits: Callable[[Leaf, Leaf], bool]
) -> Iterator[tuple[int, int]]:
    """Yield which tensors that fit may be the same: of one name, else of one shape, else the next one."""
    rules = (
        lambda a, b: a.path == b.path and fits(a, b),
        lambda a, b: a.shape == b.shape and fits(a, b),
        fits,
    )
    return _by_rules(ours, theirs, rules)


def _by_rules(
    ours: Sequence[Leaf], theirs: Sequence[Leaf], rules: Iterable[Callable[[Leaf, Leaf], bool]]
) -> Iterator[tuple[int, int]]:
    """Yield which tensors belong together: by each rule in turn, of those that are left the first that fits."""
    left, free = list(range(len(ours))), list(range(len(theirs)))
    for fits in rules:
        for i in list(left):
            found = next((j for j in free if fits(ours[i], theirs[j])), None)
            if found is not None:
                twin = i in free and theirs[i].token == theirs[found].token and fits(ours[i], theirs[i])
                found = i if twin else found
                left.remove(i)
                free.remove(found)
                yield i, found


def misfits_of(
    reference: Sequence[Leaf], candidate: Sequence[Leaf], tied: Sequence[tuple[int, int]]
) -> Iterator[tuple[int, int]]:
    """Yield what is left on both sides in order, of one sort of dtype, as pairs that would belong together."""
    if len(tied) in (len(reference), len(candidate)):
        return  # one side has nothing left
    ours = [i for i in range(len(reference)) if i not in {a for a, _ in tied}]
    theirs = [j for j in range(len(candidate)) if j not in {b for _, b in tied}]
    for i, j in zip(ours, theirs, strict=False):
        if same_sort(reference[i], candidate[j]) and reference[i].shape != candidate[j].shape:
            yield i, j


def first_step(path: str) -> str:
    """Return the first step of a path: ``[1]`` of ``[1][0].keys``."""
    found = re.match(r"\[[^\]]*\]|\.\w+|\w+", path)
    return found.group() if found else path


def _name(leaf: Leaf) -> str:
    """Return the keys and attributes under which a tensor lies in its containers, without positions."""
    return _named(leaf.path)


@lru_cache(1 << 12)
def _named(path: str) -> str:
    return "".join(_NAME.findall(path))


def _depths(leaves: Sequence[Leaf], name: str | None = None) -> list[int]:
    """Return how deep tensors lie in containers: all, or those that lie under one name."""
    return [leaf.path.count("[") for leaf in leaves if name is None or _name(leaf) == name]


def same_sort(a: Leaf, b: Leaf) -> bool:
    """Return whether two tensors are of one sort of numbers: floats, integers, booleans, complex ones."""
    return sort_of(a.dtype) == sort_of(b.dtype)


@cache
def sort_of(dtype: str) -> str:
    sort = next((sort for sort in ("bool", "uint", "int", "complex") if dtype.startswith(sort)), "float")
    return "int" if sort == "uint" else sort
