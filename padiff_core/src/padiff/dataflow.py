"""Match the operations in the code of matched calls: what does the same to the same tensors.

Two programmers order their code differently and spell it differently, so order and names alone tie the wrong
operations. Tensors are known from the calls around that are matched, from operations that were matched before, and
where the free runs gave the same values. An operation that no other does is left to the code around it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from padiff.align import BY_PLACE, Alignment, Pair, pair_leaves
from padiff.explain import plain_values
from padiff.trace import Call, Leaf, Trace

__all__ = ["with_operations"]

_SAME = 1e-3
"""Relative L2 of a tensor's sample, over the free runs, below which it may be the same tensor."""


def with_operations(alignment: Alignment, reference: Trace, candidate: Trace) -> Alignment:
    """Return an alignment with the operations matched too, of two traces that hold some."""
    flow = _Flow(reference, candidate)
    for pair in alignment.pairs:
        flow.tie(pair)
    found = [tied for pair in alignment.pairs if not alignment.is_whole(pair) for tied in flow.tied(pair, alignment)]
    taken = {id(call) for pair in found for call in (pair.reference, pair.candidate)}
    return Alignment(
        sorted([*alignment.pairs, *found], key=lambda pair: pair.candidate.index),
        [call for call in alignment.left_reference if id(call) not in taken],
        [call for call in alignment.left_candidate if id(call) not in taken],
        alignment.loose,
    )


class _Flow:
    """Know which tensors of two runs are the same."""

    def __init__(self, reference: Trace, candidate: Trace) -> None:
        self._samples = reference.samples, candidate.samples
        self._ties: set[tuple[int, int]] = set()

    def tie(self, pair: Pair) -> None:
        """Take what a matched call takes and gives on one side for what it takes and gives on the other."""
        self._ties.update((pair.reference.inputs[a].token, pair.candidate.inputs[b].token) for a, b in pair.inputs)
        self._ties.update((pair.reference.outputs[a].token, pair.candidate.outputs[b].token) for a, b in pair.outputs)

    def tied(self, around: Pair, alignment: Alignment) -> list[Pair]:
        """Return the operations that belong together in the code of a matched call, the surest matched first."""
        ours = list(_unmatched(around.reference, alignment.of_reference))
        theirs = list(_unmatched(around.candidate, alignment.of_candidate))
        found = []
        for belongs, alone in _PASSES:
            for yours in list(theirs):
                fits = [mine for mine in ours if belongs(self, mine, yours)]
                if not fits or (alone and not (len(fits) == 1 and self._is_alone(fits[0], theirs, belongs))):
                    continue
                mine = max(fits, key=lambda one: self._likeness(one, yours))
                ours.remove(mine)
                theirs.remove(yours)
                found.append(self._paired(mine, yours))
                if _is_like(mine, yours):
                    self.tie(found[-1])
        return found

    def _is_alone(self, mine: Call, theirs: Sequence[Call], belongs: Callable[[_Flow, Call, Call], bool]) -> bool:
        return sum(belongs(self, mine, yours) for yours in theirs) == 1

    def gives_the_same(self, mine: Call, yours: Call) -> bool:
        """Return whether two operations of one name gave the same in the free runs."""
        fits = _is_like(mine, yours) and _fit(mine, yours)
        return fits and all(map(self._is_same, mine.outputs, yours.outputs))

    def takes_the_same(self, mine: Call, yours: Call) -> bool:
        """Return whether two operations of one name take the same tensors, in whatever order."""
        return _is_like(mine, yours) and self.takes_only_the_same(mine, yours)

    def takes_only_the_same(self, mine: Call, yours: Call) -> bool:
        """Return whether two calls, one an operation at least, take the same tensors and give such of equal shapes."""
        either = mine.module.operation or yours.module.operation
        return either and _fit(mine, yours) and len(self._operands(mine, yours)) == len(mine.inputs)

    def _is_same(self, a: Leaf, b: Leaf) -> bool:
        if a.shape != b.shape:
            return False
        if (a.token, b.token) in self._ties:
            return True
        x, y = self._samples[0].get(a.token), self._samples[1].get(b.token)
        if x is None or y is None or x.shape != y.shape:
            return False
        return float(np.linalg.norm(x - y)) <= _SAME * float(np.linalg.norm(x))

    def _operands(self, mine: Call, yours: Call) -> list[tuple[int, int]]:
        """Return which inputs of two operations are the same tensor: of one place, if possible."""
        found: list[tuple[int, int]] = []
        free = list(range(len(yours.inputs)))
        for i, leaf in enumerate(mine.inputs):
            same = [j for j in free if self._is_same(leaf, yours.inputs[j])]
            if same:
                best = min(same, key=lambda j: ((leaf.token, yours.inputs[j].token) not in self._ties, abs(i - j)))
                found.append((i, best))
                free.remove(best)
        return found

    def _likeness(self, mine: Call, yours: Call) -> tuple[int, bool, bool]:
        same_result = bool(mine.outputs) and self.gives_the_same(mine, yours)
        return len(self._operands(mine, yours)), plain_values(mine) == plain_values(yours), same_result

    def _paired(self, mine: Call, yours: Call) -> Pair:
        """Return a pair whose inputs are tied where they are the same tensor, whichever comes first."""
        pair = Pair(mine, yours, BY_PLACE)
        operands = self._operands(mine, yours)
        ours, theirs = (
            [one for one in range(len(call.inputs)) if one not in {pair[side] for pair in operands}]
            for side, call in enumerate((mine, yours))
        )
        rest = pair_leaves([mine.inputs[i] for i in ours], [yours.inputs[j] for j in theirs])
        pair.inputs = tuple(sorted([*operands, *((ours[a], theirs[b]) for a, b in rest)]))
        return pair


_PASSES: tuple[tuple[Callable[[_Flow, Call, Call], bool], bool], ...] = (
    (_Flow.gives_the_same, False),
    (_Flow.takes_the_same, False),
    (_Flow.takes_only_the_same, True),
)
"""What shows that two operations belong together, the surest first; and whether no other may fit as well."""


def _unmatched(top: Call, matched: Callable[[Call], Pair | None]) -> Iterator[Call]:
    """Yield the operations in a call's own code and in that of unmatched calls inside; and unmatched leaf modules."""
    for child in top.children:
        if matched(child) is not None:
            continue
        if child.leaf and child.outputs:
            yield child
        if not child.module.operation:
            yield from _unmatched(child, matched)


def _is_like(mine: Call, yours: Call) -> bool:
    """Return whether two calls are of one operation by name, or a module and an operation of one kind."""
    a, b = mine.module, yours.module
    if a.operation and b.operation and _name(mine) == _name(yours):
        return True
    return (a.operation or b.operation) and a.kind is not None and a.kind == b.kind


def _name(call: Call) -> str:
    return call.path.rpartition(".")[2]


def _fit(mine: Call, yours: Call) -> bool:
    """Return whether two calls take tensors of the same shapes, in whatever order, and give such."""
    a, b = ([[leaf.shape for leaf in one] for one in (call.inputs, call.outputs)] for call in (mine, yours))
    return sorted(a[0]) == sorted(b[0]) != [] and a[1] == b[1] != []
