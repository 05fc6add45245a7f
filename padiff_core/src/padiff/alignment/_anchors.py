"""Know which calls of two runs execute the same matched units: those anchor each other, and what covers them."""

from __future__ import annotations

import itertools
from bisect import bisect
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from heapq import nsmallest
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from padiff.alignment._covers import around, around_modules, calls_of, cover, goes_on
from padiff.alignment._names import similarity
from padiff.alignment._pairs import ModulePair, Pair, called_together
from padiff.alignment._samples import FreeRuns, is_used
from padiff.alignment._sequences import align_sequences
from padiff.grouping import grouped
from padiff.trace import Call, Leaf, Trace

_MOSTLY = 0.5
_INNERMOST = 3.0
_NEAR = 16
"""How many calls of a shared module are looked at for the one that took or gave the same."""
_CLEARLY = 16
"""How many times nearer a call's values are than those that its order says, where it is another one: the steps of a
loop may be as near to each other as a fault lets them be to their own."""


class Anchors:
    """Number the executions of matched units, and know which calls cover which.

    Those of a unit belong together by what they took and gave, or ``by_order`` where there are as many on both sides.
    """

    def __init__(
        self,
        reference: Trace,
        candidate: Trace,
        modules: Sequence[ModulePair],
        inside: Collection[Call],
        *,
        by_order: bool,
    ) -> None:
        self._by_order = by_order
        ours, theirs = reference.by_module(), candidate.by_module()
        self._reference: dict[Call, set[int]] = {}
        self._candidate: dict[Call, set[int]] = {}
        self._traces, self._runs = (reference, candidate), FreeRuns(reference, candidate)
        self.same = self._runs.same
        self._both: list[tuple[Call, Call]] = []
        self._belong = {(pair.reference, pair.candidate) for pair in modules}
        self._held = {pair.reference for pair in modules}, {pair.candidate for pair in modules}
        """The modules of either side that have a counterpart."""
        alone = not any(map(_is_put_together, self._traces))
        self._own = [trace.root.path if alone or len(trace.models) == 1 else None for trace in self._traces]
        self.roots = list(self._together(*(trace.models for trace in self._traces))) if alone else []
        """Which calls of the model itself are which: a script may make several."""
        covers, number = (self._reference, self._candidate), 0

        def used(paths: tuple[set[str], set[str]]) -> tuple[list[Call], list[Call]]:
            return calls_of(paths[0], ours), calls_of(paths[1], theirs)

        for paths in sorted(called_together(modules), key=lambda one: len({len(calls) for calls in used(one)})):
            a, b = used(paths)
            both = list(self._of_module(a, b))
            self._both += both
            for mine, yours in both:
                cover(mine, number, self._reference)
                cover(yours, number, self._candidate)
                number += 1
            for place, calls in enumerate((a, b)):
                # The other side uses these parameters around its calls: none of them does all that this one does.
                rest = [call for call in calls if not call.leaf and all(call is not pair[place] for pair in both)]
                within = around(rest)
                for call in rest:
                    cover(call, number, covers[place], without=within)
                    number += 1
                # What all of these lie in does, and what those lie in that use them there.
                users = around_modules(paths[1 - place], (theirs, ours)[place]) if within and not both else []
                for some, covering in ((within, covers[place]), (users, covers[1 - place])):
                    for call in some if users else ():
                        covering.setdefault(call, set()).add(number)
                number += 1
        self._leave_what_is_held()
        for key in inside:
            # What is inside of a mapped pair anchors the pair, and is no anchor of its own.
            self._reference.pop(key, None)
            self._candidate.pop(key, None)

    def _leave_what_is_held(self) -> None:
        """Let no call of a script's cover parameters that its module holds alone, for the script to use them itself.

        Another one of the other side's script covers all else that it does, and takes and gives the same shapes.
        """
        covers = self._reference, self._candidate
        for mine, yours in (covers, covers[::-1]):
            for call in (call for call in mine if call.parent is None and not call.leaf):
                inside = set[int]().union(*(mine.get(child, ()) for child in call.children))
                tops = [other for other in yours if other.parent is None and yours[other] == inside]
                if any(_borders(other, sorted) == _borders(call, sorted) for other in tops):
                    mine[call] = inside

    def _of_module(self, ours: Sequence[Call], theirs: Sequence[Call]) -> Iterator[tuple[Call, Call]]:
        """Yield which calls of a module are which: inside of calls of the model that are, and of what is beside these.

        What is inside of a call of the model that the other side's script does not make has no counterpart.
        """
        if len(self.roots) < 2:
            yield from self._together(ours, theirs)
            return
        groups = [grouped(calls, lambda call: call.top) for calls in (ours, theirs)]
        rest: list[list[Call]] = [
            [call for top, calls in found.items() if top.path != trace.root.path for call in calls]
            for found, trace in zip(groups, self._traces, strict=True)
        ]
        for root, other in self.roots:
            mine, yours = groups[0].get(root, []), groups[1].get(other, [])
            found = list(self._together(mine, yours))
            yield from found
            for place, calls in enumerate((mine, yours)):
                rest[place] += [call for call in calls if all(call is not both[place] for both in found)]
        yield from self._together(*rest)

    def of_mapped(self, ours: Sequence[Call], theirs: Sequence[Call]) -> Iterator[tuple[Call, Call]]:
        """Yield which calls of two modules that the user maps are which: those around calls that are, and then others.

        One of them may be called for several of the other side's, of which the other is one.
        """
        found: dict[Call, Call] = {}
        if len(ours) != len(theirs):
            mine, yours = {*ours}, {*theirs}
            for both in self._both:
                a, b = ({one, *one.ancestors()} for one in both)
                found |= dict(zip(a & mine, b & yours, strict=False))
        yield from found.items()
        rest = [call for call in ours if call not in found], [call for call in theirs if call not in found.values()]
        yield from self._of_module(*rest)

    def _together(self, ours: Sequence[Call], theirs: Sequence[Call]) -> Iterator[tuple[Call, Call]]:
        """Yield which calls are which: those that took and gave the same, or one of both, or are inside of such calls.

        A script may give one batch to a model several times, with an optimizer's step in between. The others are taken
        in their order; of which one side makes more, the nearest in the order of both runs. Where all of the other
        side's get a gradient those without are left out: a port may call a projection twice, and go on with the second.
        Where as many of both get one these belong together: of steps to a fixed point the last may have gradients.
        """
        used = [
            [call for call in calls if is_used(call, trace)]
            for calls, trace in zip((ours, theirs), self._traces, strict=True)
        ]
        if 0 < len(used[0]) == len(used[1]) and (len(ours) != len(theirs) or self._part(used, ours)):
            rest = ([one for one in calls if one not in some] for calls, some in zip((ours, theirs), used, strict=True))
            for both in (used, rest):
                yield from self._together(*both)
            return
        left = used[0] if len(ours) > len(theirs) == len(used[1]) <= len(used[0]) else list(ours)
        free = used[1] if len(theirs) > len(ours) == len(used[0]) <= len(used[1]) else list(theirs)
        where = self._where(left, free)
        usual = dict(zip(ours, theirs, strict=False)) if len(ours) == len(theirs) else {}

        def away(call: Call, other: Call) -> tuple[int, ...]:
            return tuple(abs(mine - yours) for mine, yours in zip(where[call], where[other], strict=True))

        settled = max(len(left), len(free)) == 1 or (self._by_order and usual)
        for alike in () if settled else (self._equal, self._same, self._inside_the_same):
            for call in tuple(left):
                near = nsmallest(_NEAR, free, key=partial(away, call))
                found = next((other for other in near if alike(call, other)), None)
                same = found if alike == self._inside_the_same or self._nearer(call, found, usual) else None
                if same is not None:
                    left.remove(call)
                    free.remove(same)
                    yield call, same
        few, many = sorted((left, free), key=len)
        if len(few) < len(many):
            near = nsmallest(len(few), many, key=lambda one: min(away(one, other) for other in few))
            many[:] = sorted(near, key=attrgetter("index"))
        yield from zip(left, free, strict=True)

    def _part(self, used: Sequence[Sequence[Call]], ours: Sequence[Call]) -> bool:
        """Return whether of as many calls some get a gradient, each of which took or gave what one of those does."""
        return len(used[0]) < len(ours) and all(any(self._same(one, other) for other in used[1]) for one in used[0])

    def _where(self, *sides: Sequence[Call]) -> dict[Call, tuple[int, ...]]:
        """Return where some calls of both sides are in their runs.

        Where one side makes more of them, their numbers tell less than how many matched calls were made before.
        """
        found: dict[Call, tuple[int, ...]] = {}
        for side, calls in enumerate(sides):
            made = sorted(both[side].index for both in self._both) if len(sides[0]) != len(sides[1]) else []
            found.update((call, (bisect(made, call.index), call.ordinal)) for call in calls)
        return found

    def _nearer(self, call: Call, found: Call | None, usual: Mapping[Call, Call]) -> bool:
        """Return whether a call took or gave what one found did, and not just as well what the one in its order did."""
        if found is None or found is (due := usual.get(call, found)):
            return True
        ends = ([max(map(self._runs.apart, *both), default=0.0) for both in _ends(call, x)] for x in (found, due))
        return any(near * _CLEARLY <= far for near, far in zip(*ends, strict=True))

    def _inside_the_same(self, ours: Call, theirs: Call) -> bool:
        """Return whether two calls were made inside of two that took or gave the same: a fault may lie before them.

        Inside of the model's own calls all are; a script may call a module several times, also what it calls first.
        """
        return any(
            self._same(a, b)
            for a, b in itertools.product(ours.ancestors(), theirs.ancestors())
            if all(one.parent is not None or one.path != root for one, root in zip((a, b), self._own, strict=True))
        )

    def _equal(self, ours: Call, theirs: Call) -> bool:
        """Return whether two calls took and gave the same in the free runs."""
        return all(self._ends(ours, theirs))

    def _same(self, ours: Call, theirs: Call) -> bool:
        """Return whether two calls took or gave the same in the free runs."""
        return any(self._ends(ours, theirs))

    def _ends(self, ours: Call, theirs: Call) -> Iterator[bool]:
        for a, b in _ends(ours, theirs):
            yield len(a) == len(b) and self._same_values(a, b)

    def covering(self, pairs: Mapping[Call, Pair], taken: set[Call]) -> Iterator[tuple[Call, Call]]:
        """Yield calls of both sides that cover exactly the same executions, but for those that are matched.

        Repeated blocks are tied alike, as most of them: of one that is wrong, a part may give what the other side does.
        Those of which no tie gives one shape on both sides count where there are no others: nothing was compared there.
        """
        covers = self._reference, self._candidate
        chains = [grouped(calls, lambda call: frozenset(calls[call])) for calls in covers]  # noqa: B023  used at once
        found: list[tuple[tuple[list[Call], list[Call]], tuple[tuple[int, int], ...]]] = []
        for covered, matching in chains[0].items():
            ours = sorted((call for call in matching if call not in pairs), key=attrgetter("index"))
            theirs = sorted((call for call in chains[1].get(covered, ()) if call not in taken), key=attrgetter("index"))
            if ours and theirs:
                found.append(((ours, theirs), tuple(self._tie_chain(ours, theirs))))
        for group in grouped(found, lambda one: tuple(map(_structure, one[0]))).values():
            telling = [ties for nests, ties in group if any(_give_alike(nests, tie) for tie in ties)]
            usual = Counter(telling or [ties for _, ties in group]).most_common(1)[0][0]
            yield from ((ours[i], theirs[j]) for (ours, theirs), _ in group for i, j in usual)

    def _tie_chain(self, ours: list[Call], theirs: list[Call]) -> Iterator[tuple[int, int]]:
        """Tie two nests of calls that cover the same, outermost first: what is like, and where one is alone, that."""
        if len(ours) == len(theirs) == 1:
            yield 0, 0
            return
        scores = self.likeness(ours, theirs) + 0.1
        # Those that hold parameters themselves belong together whatever their names: most often the innermost.
        held = [(i, j) for i, a in enumerate(ours) for j, b in enumerate(theirs) if (a.path, b.path) in self._belong]
        if ours[-1].leaf and theirs[-1].leaf:
            held = [_innermost(ours, theirs)]
        for place in held:
            scores[place] += _INNERMOST
        yield from align_sequences(scores.astype(np.float32))

    def agree(self, ours: Call, theirs: Call) -> bool:
        """Return whether of two calls each holds the counterparts of all that the other holds."""
        return self._reference.get(ours, set()) == self._candidate.get(theirs, set())

    def apart(self, ours: Call, theirs: Call) -> bool:
        """Return whether two calls hold parameters that do not belong together: a packed layer, one of it.

        A further call of a layer of another kind, which has a counterpart of its own, is no such call. What holds none
        does not belong to what holds calls that have their counterparts elsewhere.
        Of two calls that hold calls each has to hold mostly the counterparts of what the other holds, and none may hold
        what a call right before or behind the other one does: a layer of two blocks is not the first of them.
        """
        mine, yours = self._reference.get(ours, set()), self._candidate.get(theirs, set())
        if ours.leaf and theirs.leaf:
            paths, kinds = (ours.path, theirs.path), (ours.module.kind, theirs.module.kind)
            both = paths[0] in self._held[0] and paths[1] in self._held[1] and paths not in self._belong
            return mine != yours or (both and kinds[0] != kinds[1])
        if not (mine and yours) or len(mine & yours) <= _MOSTLY * len(mine | yours):
            return bool(mine or yours)
        return goes_on(theirs, mine - yours, self._candidate) or goes_on(ours, yours - mine, self._reference)

    def likeness(self, ours: Sequence[Call], theirs: Sequence[Call]) -> NDArray[np.float32]:
        """Return how alike calls are: values of outputs 4, kind 2, shapes of outputs 2, of inputs 1, names up to 1."""
        scores = similarity([_name(call) for call in ours], [_name(call) for call in theirs])
        for i, a in enumerate(ours):
            for j, b in enumerate(theirs):
                if a.module.kind == b.module.kind and a.module.kind is not None:
                    scores[i, j] += 2
                if shapes(a.outputs) == shapes(b.outputs):
                    scores[i, j] += 2
                    if self._same_values(a.outputs, b.outputs):
                        scores[i, j] += 4
                if shapes(a.inputs) == shapes(b.inputs):
                    scores[i, j] += 1
        return scores

    def _same_values(self, a: Sequence[Leaf], b: Sequence[Leaf]) -> bool:
        """Return whether as many tensors are the same in the free runs, as far as samples show."""
        return bool(a) and all(map(self._runs.same, a, b))


def _ends(ours: Call, theirs: Call) -> tuple[tuple[Sequence[Leaf], Sequence[Leaf]], ...]:
    """Return what two calls take, and what they give."""
    return (ours.inputs, theirs.inputs), (ours.outputs, theirs.outputs)


def _give_alike(nests: tuple[Sequence[Call], Sequence[Call]], tie: tuple[int, int]) -> bool:
    ours, theirs = (shapes(nest[place].outputs) for nest, place in zip(nests, tie, strict=True))
    return ours == theirs


def _structure(nest: Sequence[Call]) -> object:
    """Return what repeated blocks have in common: of how many calls a nest is, and the classes of all inside."""
    return len(nest), tuple(call.module.class_name for call in nest[0].subtree())


def _is_put_together(trace: Trace) -> bool:
    """Return whether a script calls several modules of a model in the place of the model itself."""
    called = {call.path for call in trace.tops}
    return "" not in called and len(called) > 1


def _innermost(ours: Sequence[Call], theirs: Sequence[Call]) -> tuple[int, int]:
    """Return which calls of two nests do the same: the innermost, or one and what pads the other's input around it."""
    a, b = _borders(ours[-1]), _borders(theirs[-1])
    if a != b:
        around = [(len(ours) - 1, j) for j, call in enumerate(theirs) if _borders(call) == a]
        around += [(i, len(theirs) - 1) for i, call in enumerate(ours) if _borders(call) == b]
        if around:
            return around[-1]
    return len(ours) - 1, len(theirs) - 1


def _name(call: Call) -> str:
    return f"{call.path}.{call.module.class_name.rpartition('.')[2]}"


def shapes(leaves: Sequence[Leaf]) -> tuple[tuple[int, ...], ...]:
    return tuple(leaf.shape for leaf in leaves)


def _borders(call: Call, order: Callable[..., object] = tuple) -> tuple[object, ...]:
    """Return the shapes of a call's first input and of its outputs, these in an ``order``."""
    return (shapes(call.inputs[:1]), order(shapes(call.outputs)))
