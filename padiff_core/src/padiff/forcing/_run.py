"""Run the candidate under forcing and collect all that was not the reference's to the bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import attrs
import numpy as np

from padiff.alignment import Alignment, Pair
from padiff.forcing._checks import Assess, Assessment, with_zeros
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

Reading = Callable[[ParameterRecord], Array | None]
"""Returns what is known of a parameter on one side, in native layout."""


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

        def theirs(parameter: ParameterRecord) -> Array | None:
            return fed.gradient(parameter.path)

        ours = gradients_of(trace)
        parts = parts_alone(matches) if task.backward else ()
        return Forced(
            **{one.name: getattr(fed, one.name) for one in attrs.fields(Shown)},
            gradients=list(compared_gradients(matches, ours, theirs, assess)) if task.backward else (),
            buffers=list(_buffers(matches, trace, reference, fed, assess)),
            inputs=list(_inputs(alignment.pairs[0], trace, fed)),
            frozen=list(_frozen(matches)),
            alone=[part for part in parts if not part.is_idle(ours if part.ours else theirs)],
        )


def _frozen(matches: Sequence[UnitMatch]) -> Iterator[tuple[UnitMatch, Link, str]]:
    for match in matches:
        for link in match.links:
            ours = any(held.parameter.trainable for held in link.references)
            if not link.buffer and ours != link.candidate.parameter.trainable:
                yield match, link, "candidate" if ours else "reference"


def gradients_of(trace: Trace) -> Reading:
    """Return what reads the gradients that a run recorded of parameters."""

    def read(parameter: ParameterRecord) -> Array | None:
        key = trace.parameter_gradients.get(parameter.path)
        return None if key is None else trace.array(key)

    return read


def compared_gradients(
    matches: Sequence[UnitMatch], ours: Reading, theirs: Reading, assess: Assess | None = None
) -> Iterator[StateCheck]:
    """Yield the gradients of parameters that differ; one that does not come on one side is zeros."""

    def both(link: Link) -> tuple[Array, Array] | None:
        found = None if link.buffer else read_of(link, ours, theirs, gradient=True, zeros=True)
        # Known only now: a special transfer's own function of gradients may have failed.
        return found if link.differentiated else None

    return _compare(matches, both, assess)


def _buffers(
    matches: Sequence[UnitMatch], trace: Trace, reference: Side, fed: Fed, assess: Assess | None
) -> Iterator[StateCheck]:
    """Yield the buffers that differ behind the run, and the weights that a forward of either side changed."""

    def is_changed(link: Link) -> bool:
        path = link.candidate.parameter.path
        changed = path in fed.rewritten or any(held.parameter.path in trace.rewritten for held in link.references)
        return link.buffer or changed

    links = [link for match in matches for link in match.links if is_changed(link)]
    changed = {link.candidate.parameter.path for link in links}

    def ours(parameter: ParameterRecord) -> Array | None:
        key = trace.buffers.get(parameter.path)
        if key is not None:
            return trace.array(key)
        # A buffer may be made of parameters too, which a run does not change.
        return None if parameter.buffer else reference.value(parameter.path)

    def theirs(parameter: ParameterRecord) -> Array | None:
        return fed.buffer(parameter.path) if parameter.buffer or parameter.path in changed else None

    def both(link: Link) -> tuple[Array, Array] | None:
        return read_of(link, ours, theirs) if link.candidate.parameter.path in changed else None

    return _compare(matches, both, assess, keeping=True)


def _compare(
    matches: Sequence[UnitMatch],
    both_of: Callable[[Link], tuple[Array, Array] | None],
    assess: Assess | None,
    *,
    keeping: bool = False,
) -> Iterator[StateCheck]:
    """Yield what differs of the canonical values of both sides; ``keeping`` the candidate's."""
    for match in matches:
        known = [(link, *both) for link in match.links if (both := both_of(link)) is not None]
        checks = [(link, ours, theirs, difference(ours, theirs)) for link, ours, theirs in known]
        apart = [check for check in checks if not check[3].equal]
        scale = max((_scale(ours, found) for _, ours, _, found in checks), default=0.0) if apart else 0.0
        for link, ours, theirs, found in apart:
            said = Assessment() if assess is None else assess(None, found, ours, theirs)
            kept = np.array(theirs) if keeping else None
            yield StateCheck(match, link, found, ours, kept, scale, said.close, said.measured)


def _inputs(root: Pair, trace: Trace, fed: Fed) -> Iterator[InputCheck]:
    for ours, theirs in root.inputs:
        expected, got = trace.input_gradients.get(ours), fed.input_gradients.get(theirs)
        both = with_zeros(expected, got)
        if both is not None and not (apart := difference(*both)).equal:
            alone = "candidate" if expected is None else "reference" if got is None else None
            users = fed.consumers.get(fed.input_tokens[theirs], [])
            yield InputCheck(ours, apart, users, *both, alone)


def _scale(array: Array, apart: Difference) -> float:
    """Return an array's root mean square, measured already where it is not equal to another."""
    return apart.scale if np.isfinite(apart.scale) else root_mean_square(array)
