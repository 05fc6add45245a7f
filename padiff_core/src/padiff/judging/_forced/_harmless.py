"""Find values that differ inside of two models, and change nothing of all that these give: then they are no fault.

Such is a shift in front of a norm, or a scale that one side puts in earlier. Where the gradient of such a value is zero
nothing is proven: behind a gate of zeros any fault is hidden. Behind a mask, inputs that hide nothing prove it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from padiff.alignment import Pair
from padiff.forcing import Bench, Reader, value_reader
from padiff.judging._findings import finding_of
from padiff.judging._forced._question import NARROWED, narrower_given
from padiff.judging._forced._state import of_parameter
from padiff.judging._forced._wholes import Ends, Runs
from padiff.judging._suspicion import Suspicion, contrasted
from padiff.numerics import CAST, CONSTANT, NEGLIGIBLE_GRADIENT, SAME, Array, difference, epsilon_of, parts_apart
from padiff.report import Phase, Verdict

if TYPE_CHECKING:
    from padiff.judging._forced._judge import Judge
    from padiff.judging._forced._outcome import Outcome
    from padiff.trace import Trace


_WAYS: Sequence[Mapping[str, Any]] = ({}, {"uncast": 1.0}, *NARROWED)
"""How both models are tried in float64."""


def harmless(
    judge: Judge, found: Sequence[Suspicion], runs: Runs, unhidden: Callable[[], Outcome | None]
) -> list[Suspicion]:
    """Return the differences inside that change nothing; none of them where one may be a fault.

    ``runs`` are the free ones. In float64 both models, from one input, have to give the same values, the same gradients
    to all inputs and parameters, and the same buffers, but for an epsilon of float32 of what differs inside.
    Where what differs is hidden in part, nothing may differ either ``unhidden``, with inputs that hide no position.
    """
    differing = [one for one in found if one.verdict is Verdict.DIFFERS]
    ends = Ends(judge.alignment)
    gaps = ends.gaps(runs)  # at sight: what they are in float64 decides
    same = bool(gaps) and all(gap.rel_l2 <= SAME(gap.eps) for gap in gaps)
    inside = [is_hidden(one, judge.trace) for one in differing if not _of_the_run(one)]
    if not (same and differing and None not in inside):
        return []
    if any(map(judge.settler.randomness.takes_numbers, judge.alignment.pairs)):
        return []  # one draw proves nothing
    least = min(1.0, *(one.ruling.figures.rel_l2 for one in differing))  # of a reference of zeros it is infinite
    bound = epsilon_of("float32") * least  # what is damped on its way to the outputs is a fault all the same
    held = [one.held for one in differing]
    more = [of_parameter(judge, check) for check in judge.forced.gradients if check.link.candidate in held]
    bench = judge.settler.bench
    # Most faults show in what the models give: then the backward passes of two whole models in float64 are spared.
    ahead = attrs.evolve(bench, backward=False)
    whole = right_as_a_whole(ahead, ends.root, buffers=True, bound=bound)
    whole = whole and right_as_a_whole(bench, ends.root, buffers=True, bound=bound, more=more)
    if whole and any(inside):
        other = unhidden()
        whole = other is not None and not other.differs
    return differing if whole else []


def hidden_alone(
    judge: Judge, found: Sequence[Suspicion], unhidden: Callable[[], Outcome | None], *, beside: bool
) -> list[Suspicion]:
    """Return what differs where no gradient comes alone, and not with inputs that hide nothing.

    Something else has to differ, too, or to have differed ``beside`` it, in a step before.
    """
    differing = [one for one in found if one.verdict is Verdict.DIFFERS]
    hidden = [one for one in differing if is_hidden(one, judge.trace) and _is_right_where_read(judge, one)]
    other = unhidden() if hidden and (beside or len(hidden) < len(differing)) else None
    if other is None:
        return []
    still = {(one.candidate, str(one.what)) for one in other.findings if one.verdict is Verdict.DIFFERS}
    places = {one: finding_of(one, source=False, step=0) for one in hidden}
    return [one for one, place in places.items() if (place.candidate, str(place.what)) not in still]


def _is_right_where_read(judge: Judge, suspicion: Suspicion) -> bool:
    """Return whether what both sides of a call give by themselves agrees in the elements that get a gradient."""
    spot = suspicion.spot
    runs = judge.settler.runs(suspicion.pair, "float64")
    gradient = None if spot is None else judge.trace.gradient(spot.reference)
    if spot is None or gradient is None or runs.reference is None or runs.candidate is None:
        return False
    ours, theirs = runs.values(value_reader(spot, None))
    if ours is None or theirs is None or not ours.shape == theirs.shape == gradient.shape:
        return False
    read = gradient != 0
    return difference(ours[read], theirs[read]).rel_l2 <= CAST(epsilon_of(spot.reference.dtype))


def is_hidden(suspicion: Suspicion, trace: Trace) -> bool | None:
    """Return whether a value that the code in between makes may be read by nothing, in part.

    No gradient comes to some of its elements, or to none, since it is a mask or an index, or nothing takes it. None of
    another value, and behind zeros, where nothing tells.
    """
    spot = suspicion.spot
    if suspicion.phase is not Phase.FORWARD or spot is None or contrasted(suspicion.pair):
        return None
    gradient = trace.gradient(spot.reference)
    if gradient is None:
        return True
    return not gradient.all() if gradient.any() else None


def _of_the_run(suspicion: Suspicion) -> bool:
    """Return whether it is a parameter's gradient, which only the whole model gives: the forced run may give another.

    Where calls of both sides do not belong together one by one, what they were fed need not add up to the same: one
    side runs again what the other keeps.
    """
    return suspicion.what.kind == "parameter_gradient"


def right_as_a_whole(
    bench: Bench,
    pair: Pair,
    *,
    buffers: bool = False,
    bound: float | None = None,
    more: Sequence[Reader] = (),
    uncast: bool = False,
) -> bool | None:
    """Return whether both calls give the same, and send the same gradients to all inputs and parameters, in float64.

    With ``buffers`` they also leave the same in these; ``more`` reads what else has to be the same. No more than
    ``bound`` may be left of a difference, relative L2, by default what constants in float32 make. None where they do
    not run so. ``uncast`` leaves out casts in code to a narrower type that one side has: they round in float64, too.

    Which tensor inside stands for which follows from values. Where two hold the same (what a relu takes, and what it
    gives, if nothing of it is negative), each side may hold the other one's, and send it another gradient, while all
    that goes out of the call is right: then no gradient inside is a fault.
    """
    # What a call gives, it may use itself; of a view, on the other side, the gradient is another one then.
    own = {leaf.token for leaf in pair.reference.outputs} - {leaf.token for leaf in pair.reference.inputs}
    free = attrs.evolve(bench, alignment=bench.whole(pair).alignment.loosened(own))
    if any(_has_more(pair, what) for what in ("inputs", "outputs")):
        return False
    narrower = max(map(narrower_given, bench.alignment.pairs)) if uncast else 0.0
    for how in ({"uncast": narrower}, *_WAYS) if narrower else _WAYS:
        ours = free.tried(pair, True, dtype="float64", **how)
        theirs = ours and free.tried(pair, False, ours.observed, dtype="float64", own=False, **how)
        if ours is not None and theirs is not None:
            break
    else:
        return None
    taken, made = ([getattr(pair.reference, what)[i] for i, _ in getattr(pair, what)] for what in ("inputs", "outputs"))
    compared = [
        *((ours.observed.value(leaf), theirs.observed.value(leaf)) for leaf in made),
        *((ours.observed.gradient(leaf), theirs.observed.gradient(leaf)) for leaf in taken),
        (_sorted(ours.gradients), _sorted(theirs.gradients)),
    ]
    if buffers:
        compared.append((_sorted(ours.buffers), _sorted(theirs.buffers)))
    known = [(a, b) for a, b in compared if a is not None or b is not None]
    known += [(read(ours, True), read(theirs, False)) for read in more]  # of which both have to be there
    return all(a is not None and b is not None and a.shape == b.shape for a, b in known) and _are_alike(known, bound)


def _are_alike(pairs: Sequence[tuple[Array | None, Array | None]], bound: float | None) -> bool:
    """Return whether arrays are together; of one that cancels, as far as the largest of all rounds."""
    both = [(a, b) for a, b in pairs if a is not None and b is not None]
    apart = [difference(a, b) for a, b in both]
    apart += [part.difference for a, b in both for part in parts_apart(a, b)]
    largest = max((float(np.abs(a).max()) for a, _ in pairs if a is not None and a.size), default=0.0)
    bound = CONSTANT(0.0) if bound is None else bound
    rounded = min(bound, NEGLIGIBLE_GRADIENT(epsilon_of("float64"))) * largest
    return all(one.rel_l2 <= bound or one.max_abs <= rounded for one in apart)


def _has_more(pair: Pair, what: str) -> bool:
    """Return whether gradients go through a tensor of either call that is compared with nothing."""
    for side, call in enumerate((pair.reference, pair.candidate)):
        compared = {both[side] for both in getattr(pair, what)}
        if any(leaf.differentiable and i not in compared for i, leaf in enumerate(getattr(call, what))):
            return True
    return False


def _sorted(arrays: Mapping[str, Array]) -> Array:
    """Return all numbers in the gradients or buffers of a call, whatever their layouts: sorted."""
    parts = [part for one in arrays.values() for part in ((one.real, one.imag) if one.dtype.kind == "c" else (one,))]
    floats = [part for part in parts if part.dtype.kind == "f"]
    found = np.concatenate([np.zeros(0), *map(np.ravel, floats)], dtype=np.float64)
    found.sort()
    return found
