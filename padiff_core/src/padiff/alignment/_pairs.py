"""Hold which calls of two runs belong together, and which of their tensors."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property

import attrs

from padiff.alignment._leaves import first_step, misfits_of, pair_leaves, sort_of, with_repeated
from padiff.paths import below, upwards
from padiff.trace import Call, Key, Leaf

BY_PLACE = "same kind, shapes and place"
NAMED = "named by the mapping file"
NAMED_LOOSELY = "named by the mapping file, and holds other parameters"
GUESSED = (BY_PLACE, "holds the same parameters", NAMED_LOOSELY)
"""Why two calls were tied, where that is a guess that forcing may refute."""

MAPPED = "mapped by the user, or tied by a special transfer"


@attrs.frozen
class ModulePair:
    """The paths of two modules whose parameters were matched."""

    reference: str
    candidate: str
    whole: bool = False
    """Whether a special transfer takes all that is below them as one: nothing inside has a counterpart."""
    beside: str | None = None
    """Of several modules that the other side calls one for: the first of them, which that is paired with as well."""


def called_together(modules: Sequence[ModulePair]) -> Iterator[tuple[set[str], set[str]]]:
    """Yield the modules of both sides that belong together: one each, or one and those that it is called for."""
    more: dict[tuple[str, str], list[ModulePair]] = {}
    for pair in modules:
        if pair.beside is not None:
            for base in ((pair.beside, pair.candidate), (pair.reference, pair.beside)):
                more.setdefault(base, []).append(pair)
    for pair in modules:
        if pair.beside is None:
            together = [pair, *more.get((pair.reference, pair.candidate), ())]
            yield {one.reference for one in together}, {one.candidate for one in together}


@attrs.define(eq=False)
class Pair:
    """A call of the reference and the call of the candidate that does the same; tensors are matched by index."""

    reference: Call
    candidate: Call
    why: str
    same: Callable[[Leaf, Leaf], bool] = attrs.field(default=lambda *_: False, repr=False)
    """Whether free runs show that two tensors hold the same."""
    inputs: tuple[tuple[int, int], ...] = ()
    outputs: tuple[tuple[int, int], ...] = ()
    apart: bool = False
    """Whether it is judged with the code around: its weights are merged with those of calls beside it."""
    maybe: tuple[str, ...] = ()
    """Which of its tensors, ``input`` or ``output``, are fed only where they are the reference's."""
    put: frozenset[tuple[str, int]] = frozenset()
    """Tensors, ``input`` or ``output`` and which of the candidate's, that are fed though a fault reshapes them."""

    def __attrs_post_init__(self) -> None:
        """Match the tensors; what indexes a value of another shape (lengths, a packed batch's order) has no match."""
        given = self.reference.inputs, self.candidate.inputs
        layers = self.of_one_kind and not self.reference.module.operation
        self.inputs = with_repeated(*given, pair_leaves(*given, self.same, of_one_kind=layers))
        ours, theirs = ({leaf.token for leaf in call.inputs} for call in (self.reference, self.candidate))
        made = self.reference.outputs, self.candidate.outputs
        self.outputs = pair_leaves(*made, self._given_as_the_same, (ours, theirs), by_place=not self._part_of_a_whole)
        if self.misfed:
            self.inputs = tuple(
                (i, j) for i, j in self.inputs if sort_of(self.candidate.inputs[j].dtype) in ("float", "complex")
            )

    def _given_as_the_same(self, ours: Leaf, theirs: Leaf) -> bool:
        """Return whether two outputs hold the same; of the model itself its caller knows them by where they are."""
        kept = self.reference.parent is None or self.candidate.parent is None
        kept = kept and not self._part_of_a_whole
        return (not kept or first_step(ours.path) == first_step(theirs.path)) and self.same(ours, theirs)

    @property
    def _part_of_a_whole(self) -> bool:
        """Return whether one script calls the model itself there, and the other one of its parts."""
        calls = self.reference, self.candidate
        return all(call.parent is None for call in calls) and bool(calls[0].path) is not bool(calls[1].path)

    @property
    def key(self) -> Key:
        """Return what names it in every run of an alignment: the candidate's path and ordinal."""
        return self.candidate.key

    @property
    def taken(self) -> list[tuple[Leaf, Leaf]]:
        """Return the matched tensors that both calls are given."""
        return [(self.reference.inputs[i], self.candidate.inputs[j]) for i, j in self.inputs]

    @property
    def made(self) -> list[tuple[Leaf, Leaf]]:
        """Return the matched tensors that both calls give."""
        return [(self.reference.outputs[i], self.candidate.outputs[j]) for i, j in self.outputs]

    @property
    def tensors(self) -> Iterator[tuple[str, int, Leaf, Leaf]]:
        """Yield the matched tensors: ``input`` or ``output``, which one of the candidate's call, the two themselves."""
        for side, matched in (("input", self.inputs), ("output", self.outputs)):
            for i, j in matched:
                yield side, j, self.reference.leaves(side)[i], self.candidate.leaves(side)[j]

    def name_of(self, call: Call) -> str:
        """Return the path of a call of the candidate's as the code of this pair's names it."""
        return below(call.path, self.candidate.path) or call.path

    @property
    def memory(self) -> set[str]:
        """Return where what it gives lies, on both sides: see `Module.memory`."""
        return {self.reference.module.memory, self.candidate.module.memory}

    @property
    def misfed(self) -> bool:
        """Return whether an input cannot be fed: the two sides give it other shapes, which no calls inside explain."""
        return not self.apart and self.reference.leaf and self.candidate.leaf and self._given_another_shape

    @property
    def of_one_kind(self) -> bool:
        """Return whether both calls are of layers of one kind."""
        return self.reference.module.kind == self.candidate.module.kind is not None

    @property
    def _given_another_shape(self) -> bool:
        return next(misfits_of(self.reference.inputs, self.candidate.inputs, self.inputs), None) is not None

    def unfit(self, what: str) -> list[tuple[int, int]]:
        """Return the ``inputs`` or ``outputs`` that belong together and hold other numbers of elements.

        No layout explains why they have no counterpart.
        """
        ours, theirs, tied = getattr(self.reference, what), getattr(self.candidate, what), getattr(self, what)
        return [
            (i, j) for i, j in misfits_of(ours, theirs, tied) if math.prod(ours[i].shape) != math.prod(theirs[j].shape)
        ]

    def with_put(self, what: str, tied: tuple[int, int]) -> Pair:
        """Return it with one of its ``inputs`` or ``outputs`` put in, whatever shape the candidate's has."""
        found = copy.copy(self)
        setattr(found, what, tuple(sorted({*getattr(self, what), tied})))
        found.put = self.put | {(what.removesuffix("s"), tied[1])}
        return found

    @property
    def unfed(self) -> tuple[str, ...]:
        """Return the paths of inputs with numbers that the reference's call is not given: these stay its own."""
        fed = {j for _, j in self.inputs}
        own = (leaf for j, leaf in enumerate(self.candidate.inputs) if j not in fed)
        return tuple(leaf.path for leaf in own if sort_of(leaf.dtype) == "float")

    @property
    def withheld(self) -> tuple[Leaf, ...]:
        """Return the inputs with gradients that the reference's call alone is given."""
        fed = {i for i, _ in self.inputs}
        return tuple(leaf for i, leaf in enumerate(self.reference.inputs) if i not in fed and leaf.differentiable)

    @property
    def misordered(self) -> tuple[tuple[int, int], ...]:
        """Return the inputs of a module of one kind that the sides give it with their axes in another order."""
        if not self.misfed or not self.of_one_kind:
            return ()
        found = misfits_of(self.reference.inputs, self.candidate.inputs, self.inputs)
        ours, theirs = self.reference.inputs, self.candidate.inputs
        return tuple((i, j) for i, j in found if sorted(ours[i].shape) == sorted(theirs[j].shape))

    @property
    def misfits(self) -> tuple[tuple[int, int], ...]:
        """Return the outputs, tied in order, whose shapes differ; for calls of one kind only.

        What calls others and is given another shape, says nothing by that of what it gives.
        """
        if self.apart or not self.of_one_kind or (self._given_another_shape and not self.misfed):
            return ()
        return tuple(misfits_of(self.reference.outputs, self.candidate.outputs, self.outputs))


@attrs.define(eq=False)
class Alignment:
    """The matched calls, in the candidate's execution order, and what is left over on either side."""

    pairs: list[Pair]
    left_reference: list[Call]
    left_candidate: list[Call]
    loose: frozenset[int] = frozenset()
    """Tokens of the reference whose gradients are no measure: one side's own code uses the tensor elsewhere as well."""
    merged: frozenset[str] = frozenset()
    """Parameters of the candidate that hold what several of the reference's make."""
    _of_candidate: dict[Key, Pair] = attrs.field(init=False)
    _of_reference: dict[Key, Pair] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        """Index the pairs."""
        self._of_candidate = {pair.candidate.key: pair for pair in self.pairs}
        self._of_reference = {pair.reference.key: pair for pair in self.pairs}

    @property
    def tops(self) -> list[Pair]:
        """Return the calls that the script makes: of the model itself one for each micro-batch."""
        return [pair for pair in self.pairs if pair.candidate.parent is None and pair.reference.parent is None]

    def of_candidate(self, call: Call | None) -> Pair | None:
        """Return the pair of a candidate's call."""
        return None if call is None else self._of_candidate.get(call.key)

    def of_reference(self, call: Call | None) -> Pair | None:
        """Return the pair of a reference's call."""
        return None if call is None else self._of_reference.get(call.key)

    def of_key(self, key: Key) -> Pair | None:
        """Return the pair of a candidate's call by its path and ordinal."""
        return self._of_candidate.get(key)

    def around(self, pair: Pair) -> Pair | None:
        """Return the nearest matched call around a pair's."""
        return self.holding(pair.candidate)

    def holding(self, call: Call) -> Pair | None:
        """Return the nearest matched call around a call of the candidate's."""
        return next((one for one in map(self.of_candidate, call.ancestors()) if one and not one.apart), None)

    def using(self, path: str) -> list[Pair]:
        """Return the matched calls whose own code uses the parameters of the candidate's module at a path.

        Its own calls, or where it is never called itself, those of the nearest module around it.
        """
        return next((self._modules[one] for one in upwards(path) if one in self._modules), [])

    @cached_property
    def _modules(self) -> dict[str, list[Pair]]:
        """Return the pairs of the candidate's modules, by path."""
        found: dict[str, list[Pair]] = {}
        for pair in self.pairs:
            if not pair.candidate.module.operation:
                found.setdefault(pair.candidate.path, []).append(pair)
        return found

    def giving(self, leaf: Leaf) -> Sequence[Call]:
        """Return the reference's matched calls that give a tensor."""
        return self._givers.get(leaf.token, ())

    @cached_property
    def _givers(self) -> dict[int, list[Call]]:
        found: dict[int, list[Call]] = {}
        for call in (pair.reference for pair in self.pairs if not pair.apart):
            for leaf in call.outputs:
                found.setdefault(leaf.token, []).append(call)
        return found

    def is_inside(self, call: Call) -> bool:
        """Return whether a call lies inside of one that the user mapped, which is compared as a whole."""
        around = ((self.of_reference(above), self.of_candidate(above)) for above in call.ancestors())
        return any(pair is not None and pair.why == MAPPED for pairs in around for pair in pairs)

    def is_whole(self, pair: Pair) -> bool:
        """Return whether a pair is compared as a whole: the user mapped it, or it lies inside of such a one."""
        return pair.why == MAPPED or self.is_inside(pair.candidate)

    def without(self, dropped: Sequence[Pair]) -> Alignment:
        """Return the alignment with some pairs taken apart."""
        gone = {pair.key for pair in dropped}
        return attrs.evolve(
            self,
            pairs=[pair for pair in self.pairs if pair.key not in gone],
            left_reference=sorted(self.left_reference + [p.reference for p in dropped], key=lambda c: c.index),
            left_candidate=sorted(self.left_candidate + [p.candidate for p in dropped], key=lambda c: c.index),
        )

    def with_pair(self, pair: Pair) -> Alignment:
        """Return the alignment with the pair of one call replaced by another of the same calls."""
        return attrs.evolve(self, pairs=[pair if one.key == pair.key else one for one in self.pairs])

    def without_input(self, key: Key, tied: tuple[int, int]) -> Alignment:
        """Return the alignment with two inputs of a pair's calls that are no counterparts of each other."""
        found = copy.copy(self._of_candidate[key])
        found.inputs = tuple(one for one in found.inputs if one != tied)
        return self.with_pair(found)

    def loosened(self, tokens: Iterable[int]) -> Alignment:
        """Return the alignment under which the gradients of some of the reference's tensors are no measure."""
        return attrs.evolve(self, loose=self.loose.union(tokens))
