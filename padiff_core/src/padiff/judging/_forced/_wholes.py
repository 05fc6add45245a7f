"""Measure two models, each run freely, as wholes: how far apart their ends are, and the gradients they give."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import attrs
import numpy as np

from padiff.alignment import Alignment, Pair
from padiff.forcing import compared_gradients, gradients_of, with_zeros
from padiff.judging._compared import sampled_difference
from padiff.numerics import (
    ACCUMULATED,
    ACCUMULATION,
    CONSTANT,
    LOSS,
    NEGLIGIBLE,
    NEGLIGIBLE_GRADIENT,
    ROUNDING,
    VANISHES,
    Array,
    difference,
    epsilon,
    epsilon_of,
    epsilon_of_number,
    parts_apart,
    product_norm,
    relative,
)
from padiff.parameters import UnitMatch
from padiff.report import Phase, What
from padiff.trace import Key, Leaf, Trace

Name = tuple[str, int | str]
"""An output's or an input's index, or a parameter's path."""


@attrs.frozen
class Runs:
    """Two runs under one condition: both models', or the reference's plain and disturbed one."""

    reference: Trace
    candidate: Trace


@attrs.frozen
class Gap:
    """How far apart one value of two whole models is."""

    phase: Phase
    what: What
    rel_l2: float
    max_abs: float
    eps: float
    """Machine epsilon of the coarser type."""
    names: tuple[Name, Name]
    """What names the value in each of both runs."""
    owner: str | None = None
    """The path of the candidate's module that holds the parameter, of a gradient."""
    part: bool = False
    """Whether it is of a part that is far smaller than the rest: of that float64 alone tells."""


def worst(gaps: Iterable[Gap]) -> float:
    """Return the largest relative L2."""
    return max((gap.rel_l2 for gap in gaps), default=0.0)


@attrs.frozen
class Response:
    """How far rounding moves each value of one of two whole models, relative L2.

    Each value is held to its own: a gradient that cancels (of a bias in front of a norm) is nothing but rounding, and
    excuses no other. What is a number or two may have moved less by chance than the others mostly do.
    """

    moved: Mapping[Name, float]
    ours: bool = True
    """Whether the model is the reference."""

    def bound(self, gap: Gap) -> float:
        """Return how far apart rounding may be at one value."""
        known = sorted(self.moved.values())
        if not known:
            return 0.0
        own = self.moved.get(gap.names[not self.ours], known[-1])
        typical = known[(len(known) - 1) // 2]
        return min(ACCUMULATION * known[-1], max(ACCUMULATED(gap.eps), ACCUMULATION * max(own, typical)))

    def explains(self, gap: Gap) -> bool:
        """Return whether rounding is all that there is to a gap."""
        return gap.rel_l2 <= self.bound(gap)


class Ends:
    """The matched outputs of two models, and their losses."""

    backward = False
    negligible = ROUNDING

    def __init__(self, alignment: Alignment, is_other_loss: Callable[[], bool] | None = None) -> None:
        """Take the ends of what is aligned, and what tells losses that far apart in float64 from rounded ones."""
        self._alignment = alignment
        self.root = alignment.pairs[0]
        self._is_other_loss = is_other_loss

    def gaps(self, runs: Runs) -> list[Gap]:
        """Return how far apart the two models are."""
        return [*_outputs(self.root.outputs, runs), *_losses(runs)]

    def response(self, runs: Runs) -> list[Gap]:
        """Return how far apart two runs of the reference are."""
        same = [(index, index) for index in range(len(runs.reference.outputs))]
        return [*_outputs(same, runs), *_losses(runs)]

    def leap(self, runs: Runs, largest: Gap) -> Pair | None:
        """Return the first matched call, inner ones first, whose own code makes the difference leap; or None: it grows.

        That is by more than `VANISHES` times what its inputs, and the outputs of the calls inside, are apart.
        """
        calls = [{call.key: call for call in trace.calls} for trace in (runs.reference, runs.candidate)]
        given: dict[Key, float] = {}
        """The largest difference among the outputs of the matched calls inside, by the enclosing candidate's call."""
        for pair in sorted(self._alignment.pairs, key=lambda pair: pair.candidate.end):
            ours, theirs = calls[0].get(pair.reference.key), calls[1].get(pair.candidate.key)
            if ours is None or theirs is None:
                continue
            taken = _sampled(runs, ours.inputs, theirs.inputs, pair.inputs)
            made = _sampled(runs, ours.outputs, theirs.outputs, pair.outputs)
            known = max(taken, given.pop(pair.candidate.key, 0.0))
            around = self._alignment.around(pair)
            if around is not None:
                given[around.key] = max(given.get(around.key, 0.0), made)
            eps = epsilon_of(*(leaf.dtype for leaf in (*ours.outputs, *theirs.outputs)))
            if made > VANISHES * max(known, CONSTANT(eps), NEGLIGIBLE(eps)):
                return pair
        return self.root if largest.phase is Phase.LOSS and self._loss_leaps(runs, largest) else None

    def _loss_leaps(self, runs: Runs, loss: Gap) -> bool:
        """Return whether, in float64, the losses are further apart than what they are made of, and what that rounds.

        Targets and weights that a loss function holds may have been rounded to a model's type, and so may the loss.
        """
        outputs = [gap.rel_l2 for gap in _outputs(self.root.outputs, runs)]
        losses = (epsilon_of_number(one.loss or 0.0) for one in (runs.reference, runs.candidate))
        known = max(VANISHES * max(*outputs, CONSTANT(loss.eps)), *map(LOSS, losses)) if outputs else math.inf
        return loss.rel_l2 > known and (self._is_other_loss is None or self._is_other_loss())


class Gradients:
    """The gradients that two models give to their matched parameters, and to their inputs."""

    backward = True
    negligible = NEGLIGIBLE_GRADIENT

    def __init__(self, alignment: Alignment, matches: Sequence[UnitMatch]) -> None:
        self._alignment, self._matches = alignment, matches
        self.root = alignment.pairs[0]

    def gaps(self, runs: Runs) -> list[Gap]:
        """Return how far apart the two models are."""
        found = []
        ours, theirs = map(gradients_of, (runs.reference, runs.candidate))
        for check in compared_gradients(self._matches, ours, theirs):
            apart, link = check.difference, check.link
            what = What("parameter_gradient", link.candidate.part.parameter)
            eps = max(epsilon(check.reference.dtype), epsilon_of(link.candidate.parameter.dtype))
            owner = check.match.candidate.module.path
            names = ("parameter", link.reference.parameter.path), ("parameter", link.candidate.parameter.path)
            found.append(Gap(Phase.BACKWARD, what, relative(apart, check.scale), apart.max_abs, eps, names, owner))
        return [*found, *self._inputs(self.root.inputs, runs)]

    def response(self, runs: Runs) -> list[Gap]:
        """Return how far apart two runs of the reference are."""
        found = []
        for path, key in runs.reference.parameter_gradients.items():
            other = runs.candidate.parameter_gradients.get(path)
            if other is not None:
                ours = runs.reference.array(key)
                apart = difference(ours, runs.candidate.array(other))
                what, name = What("parameter_gradient", path), ("parameter", path)
                found.append(Gap(Phase.BACKWARD, what, apart.rel_l2, apart.max_abs, epsilon(ours.dtype), (name, name)))
        return [*found, *self._inputs([(i, i) for i in runs.reference.input_gradients], runs)]

    def leap(self, runs: Runs, largest: Gap) -> Pair | None:
        """Return a call of the module whose parameter has the largest gap, where that is far beyond rounding."""
        if largest.rel_l2 <= VANISHES * max(CONSTANT(largest.eps), self.negligible(largest.eps)):
            return None
        users = [pair for pair in self._alignment.pairs if pair.candidate.path == largest.owner]
        return users[0] if users else self.root

    def _inputs(self, matched: Iterable[tuple[int, int]], runs: Runs) -> Iterator[Gap]:
        for ours, theirs in matched:
            a, b = runs.reference.input_gradients.get(ours), runs.candidate.input_gradients.get(theirs)
            leaf = self.root.reference.inputs[ours]
            both = with_zeros(a, b)
            lone = (a is None) is not (b is None) and is_mask(runs.reference.value(leaf))
            if both is not None and both[0].shape == both[1].shape and not lone:
                apart, eps = difference(*both), max(epsilon(one.dtype) for one in both)
                what, names = What("input_gradient", leaf.path, ours), (("input", ours), ("input", theirs))
                yield Gap(Phase.BACKWARD, what, apart.rel_l2, apart.max_abs, eps, names)


Wholes = Ends | Gradients
"""One aspect of two whole models."""


def is_mask(value: Array | None) -> bool:
    """Return whether an input is a mask, of zeros and ones: one model computes with it, the other compares it."""
    return value is not None and bool(np.isin(value, (0, 1)).all())


def _outputs(matched: Iterable[tuple[int, int]], runs: Runs) -> Iterator[Gap]:
    ours, theirs = runs.reference.outputs, runs.candidate.outputs
    for a, b in matched:
        if a < len(ours) and b < len(theirs) and ours[a].shape == theirs[b].shape:
            apart = difference(ours[a], theirs[b])
            eps = max(epsilon(ours[a].dtype), epsilon(theirs[b].dtype))
            names: tuple[Name, Name] = ("output", a), ("output", b)
            what = What("free_output", index=a)
            yield Gap(Phase.FORWARD, what, apart.rel_l2, apart.max_abs, eps, names)
            for part in parts_apart(ours[a], theirs[b]):
                apart, of = part.difference, f"{part.axis}, {part.places}"
                names = (f"output {a}", of), (f"output {b}", of)
                yield Gap(Phase.FORWARD, what, apart.rel_l2, apart.max_abs, eps, names, part=True)


def _losses(runs: Runs) -> Iterator[Gap]:
    ours, theirs = runs.reference.loss, runs.candidate.loss
    if ours is not None and theirs is not None:
        error = abs(ours - theirs)
        share = 0.0 if error == 0 else error / abs(ours) if ours else float("inf")
        eps = epsilon_of(*(str(one.dtype) for one in runs.reference.outputs)) or epsilon_of("float32")
        yield Gap(Phase.LOSS, What("loss"), share, error, eps, (("loss", 0), ("loss", 0)))


def _sampled(runs: Runs, ours: Sequence[Leaf], theirs: Sequence[Leaf], matched: Iterable[tuple[int, int]]) -> float:
    """Return the largest relative L2 between matched tensors of two calls, as far as samples of them show."""
    leaves = ((ours[a], theirs[b]) for a, b in matched if a < len(ours) and b < len(theirs))
    found = sampled_difference(leaves, runs.reference, runs.candidate)
    return 0.0 if found is None else found.rel_l2


def response_by_gradients(trace: Trace) -> float | None:
    """Return by how much, relative L2, the output moves where each element that a call gives does by up to an epsilon.

    None where the gradients do not tell: there are several outputs, a loss, or no backward pass.

    The backward pass starts from a fixed random gradient c of the output y, with independent elements. What comes to a
    value v is g = J'c, so a disturbance d of v, of independent elements, moves c'y by g'd, and y by as much for each of
    its elements: in the mean, its root mean square is that of the sum over all values of ||g d||^2. This is the first
    order of what a run shows whose every call is disturbed by one machine epsilon; to first order rounding is all there
    is to it.
    """
    if len(trace.outputs) != 1 or trace.start_seed is None or not trace.root.outputs:
        return None
    output, size = trace.outputs[0], np.linalg.norm(trace.outputs[0])
    sent = trace.gradient(trace.root.outputs[0])
    started = 0.0 if sent is None else float(np.linalg.norm(sent))
    if not (size > 0 and started > 0):
        return None
    moved = 0.0
    for token in {leaf.token for call in trace.calls for leaf in call.outputs}:
        value, gradient = trace.values.get(token), trace.gradients.get(token)
        if value is None or gradient is None:
            continue
        given, sent = trace.array(value), trace.array(gradient)
        if given.shape == sent.shape and given.dtype.kind == "f":
            # A disturbance that is uniform within one epsilon is in the mean this fraction of it.
            moved += (epsilon(given.dtype) * product_norm(given, sent)) ** 2 / 3
    return math.sqrt(moved * output.size) / started / float(size)
