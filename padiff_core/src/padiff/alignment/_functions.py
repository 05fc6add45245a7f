"""Match the operations in the code of matched calls: what does the same to the same tensors.

Two programmers order their code differently and spell it differently, so order and names alone tie the wrong
operations. Tensors are known from the calls around that are matched, from operations that were matched before, and
where the free runs gave the same values. An operation that no other does is left to the code around it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from itertools import islice

from padiff.alignment._pairs import BY_PLACE, Alignment, Pair
from padiff.alignment._samples import FreeRuns
from padiff.paths import last
from padiff.trace import Call, Leaf, Trace, plain_values

Takers = dict[int, list[Call]]
"""Token of a tensor -> the calls that take it, in execution order."""


def with_operations(alignment: Alignment, reference: Trace, candidate: Trace) -> Alignment:
    """Return an alignment with the operations matched too, of two traces that hold some."""
    flow = _Flow(reference, candidate)
    for pair in alignment.pairs:
        flow.tie(pair)
    found = [tied for pair in alignment.pairs if not alignment.is_whole(pair) for tied in flow.tied(pair, alignment)]
    taken = {call for pair in found for call in (pair.reference, pair.candidate)}
    return Alignment(
        sorted([*alignment.pairs, *found], key=lambda pair: pair.candidate.index),
        [call for call in alignment.left_reference if call not in taken],
        [call for call in alignment.left_candidate if call not in taken],
        alignment.loose,
    )


class _Flow:
    """Know which tensors of two runs are the same."""

    def __init__(self, reference: Trace, candidate: Trace) -> None:
        self._runs = FreeRuns(reference, candidate)
        self._ties: set[tuple[int, int]] = set()
        self._tied: tuple[dict[int, set[int]], dict[int, set[int]]] = {}, {}
        """By side: token -> those of the other side that are tied to it."""

    def tie(self, pair: Pair) -> None:
        """Take what a matched call takes and gives on one side for what it takes and gives on the other."""
        for _, _, ours, theirs in pair.tensors:
            self._ties.add((ours.token, theirs.token))
            self._tied[0].setdefault(ours.token, set()).add(theirs.token)
            self._tied[1].setdefault(theirs.token, set()).add(ours.token)

    def tied(self, around: Pair, alignment: Alignment) -> list[Pair]:
        """Return the operations that belong together in the code of a matched call, the surest matched first."""
        ours = dict.fromkeys(unmatched_inside(around.reference, alignment.of_reference))
        theirs = dict.fromkeys(unmatched_inside(around.candidate, alignment.of_candidate))
        takers = _takers(ours), _takers(theirs)
        found = []
        for belongs, alone in _PASSES:
            near = belongs is _Flow.takes_the_tied
            for yours in list(theirs):
                among = self._near(yours, takers[0], ours, 1) if near else ours
                # Where no other may fit, two that fit are as many as all.
                fits = list(islice((mine for mine in among if belongs(self, mine, yours)), 2 if alone else None))
                if not fits:
                    continue
                if alone:
                    others = self._near(fits[0], takers[1], theirs, 0) if near else theirs
                    if len(fits) > 1 or sum(1 for _ in islice(filter(partial(belongs, self, fits[0]), others), 2)) > 1:
                        continue
                mine = max(fits, key=lambda one: self._likeness(one, yours))
                del ours[mine], theirs[yours]
                found.append(self._paired(mine, yours))
                if _is_like(mine, yours):
                    self.tie(found[-1])
        return found

    def _near(self, call: Call, takers: Takers, left: Collection[Call], side: int) -> dict[Call, None]:
        """Return those calls of the other side that take a tensor tied to one that a call of this side takes."""
        tokens = (token for leaf in call.inputs for token in self._tied[side].get(leaf.token, ()))
        return dict.fromkeys(one for token in tokens for one in takers.get(token, ()) if one in left)

    def takes_the_tied(self, mine: Call, yours: Call) -> bool:
        """Return whether two operations of one name take tensors that are tied, whatever they give.

        Values prove less: those of a loop that settles come again step by step.
        """
        for leaf in mine.inputs:
            if not any((leaf.token, other.token) in self._ties for other in yours.inputs):
                return False
        return self.is_the_same(mine, yours)

    def does_the_same(self, mine: Call, yours: Call) -> bool:
        """Return whether two operations of one name take the same tensors, and gave the same in the free runs."""
        same = _is_like(mine, yours) and self._gives_the_same(mine, yours)
        return same and self._takes_the_same(mine, yours)

    def is_the_same(self, mine: Call, yours: Call) -> bool:
        """Return whether two operations of one name take the same tensors, in whatever order."""
        return _is_like(mine, yours) and self._takes_the_same(mine, yours)

    def stands_in_its_place(self, mine: Call, yours: Call) -> bool:
        """Return whether two other operations take the same tensors: another activation, a sum for a product."""
        return _may_stand_for(mine, yours) and self._takes_the_same(mine, yours)

    def _takes_the_same(self, mine: Call, yours: Call) -> bool:
        return _fit(mine, yours) and len(self._operands(mine, yours)) == len(mine.inputs)

    def _gives_the_same(self, mine: Call, yours: Call) -> bool:
        return all(map(self._is_same, mine.outputs, yours.outputs))

    def _is_same(self, a: Leaf, b: Leaf) -> bool:
        return a.shape == b.shape and ((a.token, b.token) in self._ties or self._runs.same(a, b))

    def _operands(self, mine: Call, yours: Call) -> list[tuple[int, int]]:
        """Return which inputs of two operations are the same tensor: of one place, if possible."""
        found: list[tuple[int, int]] = []
        free = list(range(len(yours.inputs)))
        for i, leaf in enumerate(mine.inputs):
            same = [j for j in free if self._is_same(leaf, yours.inputs[j])]
            if same:
                ranks = {j: ((leaf.token, yours.inputs[j].token) not in self._ties, abs(i - j)) for j in same}
                best = min(same, key=ranks.__getitem__)
                found.append((i, best))
                free.remove(best)
        return found

    def _likeness(self, mine: Call, yours: Call) -> tuple[bool, bool]:
        return plain_values(mine) == plain_values(yours), self._gives_the_same(mine, yours)

    def _paired(self, mine: Call, yours: Call) -> Pair:
        """Return a pair whose inputs are tied where they are the same tensor, whichever comes first."""
        pair = Pair(mine, yours, BY_PLACE)
        pair.inputs = tuple(self._operands(mine, yours))
        return pair


_PASSES: tuple[tuple[Callable[[_Flow, Call, Call], bool], bool], ...] = (
    (_Flow.takes_the_tied, True),
    (_Flow.does_the_same, False),
    (_Flow.is_the_same, False),
    (_Flow.stands_in_its_place, True),
)
"""What shows that two operations belong together, the surest first; and whether no other may fit as well."""


def unmatched_inside(top: Call, matched: Callable[[Call], Pair | None]) -> Iterator[Call]:
    """Yield the operations in a call's own code and in that of unmatched calls inside; and unmatched leaf modules."""
    for child in top.children:
        if matched(child) is not None:
            continue
        if child.leaf and child.outputs:
            yield child
        if not child.module.operation:
            yield from unmatched_inside(child, matched)


def _is_like(mine: Call, yours: Call) -> bool:
    """Return whether two calls are of one operation by name, or a module and an operation of one kind."""
    a, b = mine.module, yours.module
    if a.operation and b.operation and last(mine.path) == last(yours.path):
        return True
    return (a.operation or b.operation) and a.kind is not None and a.kind == b.kind


def _may_stand_for(mine: Call, yours: Call) -> bool:
    """Return whether one of two calls, one an operation at least, may have been written for the other.

    What is computed of one tensor alone may be a first step of many (a scale, a cast), but for known functions.
    """
    a, b = mine.module, yours.module
    return (a.operation or b.operation) and ((a.kind is not None and b.kind is not None) or len(mine.inputs) > 1)


def _takers(calls: Iterable[Call]) -> Takers:
    """Return the calls by the tensors that they take."""
    found: Takers = {}
    for call in calls:
        for token in dict.fromkeys(leaf.token for leaf in call.inputs):
            found.setdefault(token, []).append(call)
    return found


def _fit(mine: Call, yours: Call) -> bool:
    """Return whether two calls take tensors of the same shapes, in whatever order, and give such."""
    a, b = ([[leaf.shape for leaf in leaves] for leaves in (call.inputs, call.outputs)] for call in (mine, yours))
    return sorted(a[0]) == sorted(b[0]) != [] and a[1] == b[1] != []
