"""Run the candidate under forcing and collect all that was not the reference's to the bit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import attrs
import numpy as np

from padiff.alignment import Alignment, Pair
from padiff.forcing._checks import Assess, Assessment
from padiff.forcing._messages import Fed, ForceRequest, Shown
from padiff.forcing._side import Side
from padiff.numerics import (
    ACCUMULATED,
    Array,
    Difference,
    Threshold,
    difference,
    epsilon,
    is_suspect,
    relative,
    root_mean_square,
)
from padiff.parameters import Link, PartAlone, UnitMatch, parts_alone, read_of
from padiff.recording import Task
from padiff.report import Measurement
from padiff.trace import ParameterRecord, Trace


@attrs.frozen
class StateCheck:
    """Record one gradient of a parameter, or one buffer after the run, that was not the reference's to the bit."""

    match: UnitMatch
    link: Link
    difference: Difference
    reference: Array
    """The reference's, in the candidate's orientation."""
    candidate: Array | None
    """The candidate's, of buffers; gradients are as many as the parameters, and are not kept."""
    scale: float
    """Root mean square of the largest value of its kind in the same unit: what rounding is relative to."""
    close: bool | None = None
    measured: tuple[Measurement, ...] = ()

    @property
    def accumulated(self) -> bool:
        """Return whether rounding that accumulated explains it."""
        return relative(self.difference, self.scale) <= ACCUMULATED(epsilon(self.reference.dtype))

    def is_suspect(self, negligible: Threshold) -> bool:
        """Return whether it is more than rounding at sight, or outside of the user's own rule."""
        if self.close is not None:
            return not self.close
        return is_suspect(self.difference, self.reference.dtype, self.scale, negligible)


@attrs.frozen
class InputCheck:
    """Record the gradient of one input of the root that was not the reference's to the bit, and the input's users."""

    index: int
    """The reference's."""
    difference: Difference
    users: list[Pair]
    reference: Array
    candidate: Array
    alone: str | None = None
    """The only side on which a gradient reaches the input, where it is one; the other's is zero."""


@attrs.frozen(eq=False)
class Forced(Shown):
    """Hold what a forced run showed; two free runs show no more than the checks of their values."""

    gradients: Sequence[StateCheck] = ()
    buffers: Sequence[StateCheck] = ()
    inputs: Sequence[InputCheck] = ()
    frozen: Sequence[tuple[UnitMatch, Link, str]] = ()
    """The parameters that are frozen on one side alone, and on which."""
    alone: Sequence[PartAlone] = ()
    """Parts of parameters that one side alone has, and gradients come to."""


def force(
    reference: Side,
    candidate: Side,
    task: Task,
    alignment: Alignment,
    trace: Trace,
    matches: Sequence[UnitMatch],
    assess: Assess | None = None,
) -> Forced:
    """Run the candidate with each matched call fed from the reference's trace. The model comes back as it was.

    ``assess`` tells what the user's own rule, and the metrics of plugins, say of two arrays.
    """
    with candidate.force(ForceRequest(task, alignment.pairs, trace, alignment.loose), assess) as fed:
        rewritten = _rewritten(matches, trace, fed)

        def gradient(parameter: ParameterRecord) -> Array | None:
            return fed.gradient(parameter.path)

        def buffer(parameter: ParameterRecord) -> Array | None:
            return fed.buffer(parameter.path) if parameter.buffer or parameter.path in rewritten else None

        sent = trace.parameter_gradients
        return Forced(
            **{one.name: getattr(fed, one.name) for one in attrs.fields(Shown)},
            gradients=list(_compare(matches, sent, trace, reference, gradient, assess)) if task.backward else (),
            buffers=list(_compare(matches, trace.buffers, trace, reference, buffer, assess, rewritten)),
            inputs=list(_inputs(alignment.pairs[0], trace, fed)),
            frozen=list(_frozen(matches)),
            alone=list(_alone(matches, trace, gradient)) if task.backward else (),
        )


def _rewritten(matches: Sequence[UnitMatch], trace: Trace, fed: Fed) -> Collection[str]:
    """Return the paths of the candidate's weights that a forward of either side changed, or that stand for buffers."""
    return {
        link.candidate.parameter.path
        for match in matches
        for link in match.links
        if link.buffer
        or link.candidate.parameter.path in fed.rewritten
        or any(held.parameter.path in trace.rewritten for held in link.references)
    }


def _frozen(matches: Sequence[UnitMatch]) -> Iterator[tuple[UnitMatch, Link, str]]:
    for match in matches:
        for link in match.links:
            ours = any(held.parameter.trainable for held in link.references)
            if not link.buffer and ours != link.candidate.parameter.trainable:
                yield match, link, "candidate" if ours else "reference"


def _alone(
    matches: Sequence[UnitMatch], trace: Trace, theirs: Callable[[ParameterRecord], Array | None]
) -> Iterator[PartAlone]:
    def ours(parameter: ParameterRecord) -> Array | None:
        key = trace.parameter_gradients.get(parameter.path)
        return None if key is None else trace.array(key)

    return (part for part in parts_alone(matches) if not part.is_idle(ours if part.ours else theirs))


def compared_gradients(
    reference: Side, matches: Sequence[UnitMatch], ours: Trace, theirs: Trace
) -> Iterator[StateCheck]:
    """Yield the gradients of parameters that differ between two free runs, the reference's and the candidate's."""

    def read(parameter: ParameterRecord) -> Array | None:
        key = theirs.parameter_gradients.get(parameter.path)
        return None if key is None else theirs.array(key)

    return _compare(matches, ours.parameter_gradients, ours, reference, read, None)


def _compare(
    matches: Sequence[UnitMatch],
    recorded: Mapping[str, int],
    trace: Trace,
    reference: Side,
    read: Callable[[ParameterRecord], Array | None],
    assess: Assess | None,
    rewritten: Collection[str] = (),
) -> Iterator[StateCheck]:
    for match in matches:
        pairs = [(link, _both(link, recorded, trace, reference, read, rewritten)) for link in match.links]
        known = [(link, *both) for link, both in pairs if both is not None]
        checks = [(link, ours, theirs, difference(ours, theirs)) for link, ours, theirs in known]
        apart = [check for check in checks if not check[3].equal]
        scale = max((_scale(ours, found) for _, ours, _, found in checks), default=0.0) if apart else 0.0
        for link, ours, theirs, found in apart:
            said = Assessment() if assess is None else assess(None, found, ours, theirs)
            kept = np.array(theirs) if recorded is trace.buffers else None
            yield StateCheck(match, link, found, ours, kept, scale, said.close, said.measured)


def _inputs(root: Pair, trace: Trace, fed: Fed) -> Iterator[InputCheck]:
    for ours, theirs in root.inputs:
        expected, got = trace.input_gradients.get(ours), fed.input_gradients.get(theirs)
        if expected is None and got is None:
            continue
        alone = "candidate" if expected is None else "reference" if got is None else None
        expected = np.zeros_like(got) if expected is None else expected
        got = np.zeros_like(expected) if got is None else got
        apart = difference(expected, got)
        if not apart.equal:
            token = fed.input_tokens[theirs]
            yield InputCheck(ours, apart, fed.consumers.get(token, []), expected, got, alone)


def _both(
    link: Link,
    recorded: Mapping[str, int],
    trace: Trace,
    reference: Side,
    read: Callable[[ParameterRecord], Array | None],
    rewritten: Collection[str],
) -> tuple[Array, Array] | None:
    """Return the canonical values of both sides, zeros for a gradient that only one side has."""
    after = recorded is trace.buffers
    if after is not link.buffer and not (after and link.candidate.parameter.path in rewritten):
        return None

    def native(parameter: ParameterRecord) -> Array | None:
        key = recorded.get(parameter.path)
        if key is None:
            # A buffer may be made of parameters too, which a run does not change.
            return reference.value(parameter.path) if after and not parameter.buffer else None
        return trace.array(key)

    found = read_of(link, native, read, gradient=not after, zeros=not after)
    # Known only now: a special transfer's own function of gradients may have failed.
    return found if after or link.differentiated else None


def _scale(array: Array, apart: Difference) -> float:
    """Return an array's root mean square, measured already where it is not equal to another."""
    return apart.scale if np.isfinite(apart.scale) else root_mean_square(array)
