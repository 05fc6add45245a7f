"""Judge what lies at a model's ends: its inputs, its outputs that have no counterpart, and its loss."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import attrs
import numpy as np

from padiff.alignment import Alignment, Pair, first_step
from padiff.forcing import Forced, Given, Spot
from padiff.judging._causes import cause_between
from padiff.judging._findings import finding_at, place_of
from padiff.judging._likeness import likeness_of_inputs
from padiff.judging._shapes import described, other_shape, sides_described, within_code
from padiff.judging._sizes import Held
from padiff.judging._tolerance import Rule
from padiff.kinds import CATALOGUE
from padiff.numerics import (
    GROSS,
    LOSS,
    NEGLIGIBLE,
    SAME,
    VANISHES,
    Array,
    difference,
    epsilon_of,
    epsilon_of_number,
    is_float,
    product_norm,
)
from padiff.report import SIDES, Cause, Evidence, Figures, Finding, Note, Phase, Place, Verdict, What
from padiff.trace import Leaf, Trace

_CACHE = re.compile(r"\b(past_key_values?|(kv_)?caches?|cache_params|presents|mems)\b")
"""The names of what a model returns for generating step by step: keys and values, or states."""


def unlike_inputs(forced: Forced, given: Callable[[Spot], tuple[Held, Held]], step: int) -> Iterator[Finding]:
    """Yield the arguments that were given as other values to each side: then the inputs differ, not the models.

    ``given`` returns what both sides were, as far as it is known: whole, it shows in which way one is like the other.
    """
    for check in forced.checks:
        spot, found = check.spot, check.difference
        if check.backward or check.kept or spot.owner is not None or spot.what != "input":
            continue
        coarser = epsilon_of(spot.reference.dtype, spot.candidate.dtype)
        if found.rel_l2 <= NEGLIGIBLE(coarser) if check.close is None else check.close:
            continue
        name = spot.candidate.path
        ours, theirs = given(spot)
        alike = None
        if isinstance(ours, np.ndarray) and isinstance(theirs, np.ndarray):
            alike = likeness_of_inputs(ours, theirs, SAME(coarser))
        yield finding_at(
            spot.pair,
            Phase.FORWARD,
            What("input", name),
            *([] if alike is None else [alike]),
            Evidence("other_inputs"),
            figures=Figures.of(found, check.measured),
            cause=Cause("inputs", {"name": name}, verified=True),
            source=True,
            step=step,
        )


def differing_where(trace: Trace, outputs: Mapping[int, tuple[Array, Array]]) -> Iterator[Note]:
    """Yield which input tells by one of its values where an output differs: a mask, or words that are padding.

    Of ``outputs``, by their index in the reference, those are asked that are further apart than free runs may be.
    """
    known = ((leaf.path, trace.value(leaf)) for leaf in trace.root.inputs)
    given = [(name, one.squeeze(-1) if one.shape[-1:] == (1,) else one) for name, one in known if one is not None]
    for index, (ours, theirs) in outputs.items():
        bound = SAME(epsilon_of(ours.dtype.name, theirs.dtype.name)) if is_float(ours) else 0.0
        fits = [(name, one) for name, one in given if one.ndim and ours.shape[: one.ndim] == one.shape]
        if not (bound and fits and ours.shape == theirs.shape and difference(ours, theirs).rel_l2 > bound):
            continue
        wide = ours.astype(np.float64)
        with np.errstate(invalid="ignore"):  # of infinities, which are equal, or differ as NaN does
            both = np.where(ours == theirs, 0.0, wide - theirs), np.where(np.isfinite(wide), wide, 0.0)
        for name, array in fits:
            apart, whole = (np.linalg.norm(one.reshape(*array.shape, -1), axis=-1) for one in both)
            differs = ~(apart <= bound * whole)
            if differs.any() and np.array_equal(array == array[differs][0], differs) and not differs.all():
                value = array[differs][0].item()
                yield Note("differs_where", {"output": index, "input": name, "value": value})
                return


def unlike_shapes(root: Pair, step: int, *, differs: bool) -> Iterator[Finding]:
    """Yield the inputs that have other sizes on each side, where nothing fits that the models took, and none they gave.

    Or where it ``differs``: of words of other lengths a model may give a mean.
    """
    if root.inputs or (root.outputs and not differs):
        return
    for ours, theirs in zip(root.reference.inputs, root.candidate.inputs, strict=False):
        if len(ours.shape) == len(theirs.shape) and math.prod(ours.shape) != math.prod(theirs.shape):
            yield finding_at(
                root,
                Phase.FORWARD,
                What("input", theirs.path),
                Evidence("other_input_shapes", sides_described(ours, theirs)),
                cause=Cause("inputs", {"name": theirs.path}, verified=True),
                source=True,
                step=step,
            )


def loss_finding(
    losses: tuple[float | None, float | None],
    trace: Trace,
    root: Pair,
    rule: Rule | None,
    step: int,
    *,
    places: tuple[Place, Place] | None = None,
    outputs: float = 0.0,
    is_rounding: Callable[[float], bool] | None = None,
) -> Iterator[Finding]:
    """Yield the loss, where it differs by more than the ``outputs`` that it was made of do, relative L2.

    One whose terms cancel (a critic's, an advantage's) is held to what these make of it: to first order each output
    times its gradient, of the reference's ``trace``, in whatever call of a script's.
    Both may have been computed in float32: what that holds exactly was, but for one number in 2^29.
    The ``places`` are those of the functions that make it, and ``is_rounding`` tells what rounding explains.
    """
    ours, theirs = losses
    if ours is None or theirs is None:
        return
    error, single = abs(ours - theirs), epsilon_of("float32")
    eps = epsilon_of_outputs(root) or single
    computed = min(single, epsilon_of_number(ours), epsilon_of_number(theirs))
    bound = max(LOSS(max(eps, computed)), VANISHES * outputs)
    size = max(abs(ours), abs(theirs))
    if rule(np.asarray(ours), np.asarray(theirs)) if rule else error <= bound * max((size, *loss_terms(trace))):
        return
    if not rule and is_rounding and error <= GROSS(eps) * size and is_rounding(error):
        return
    around = places or (place_of(root.reference, stack=False), place_of(root.candidate, stack=False))
    yield Finding(
        Verdict.DIFFERS,
        Phase.LOSS,
        *around,
        What("loss"),
        figures=Figures(error / abs(ours) if ours else math.inf, error),
        evidence=(Evidence.of("losses" if places else "losses_of_runs", reference=ours, candidate=theirs),),
        source=outputs <= SAME(eps),
        step=step,
    )


def of_one_loss(found: Iterable[Finding]) -> Iterator[Finding]:
    """Yield findings, with one source of all that a loss makes, its number and its gradients: it is one function."""
    found = list(found)
    made = [one for one in found if one.source and one.phase is Phase.LOSS]
    first = next((one for one in made if one.what.kind == "loss"), made[0] if made else None)
    for one in found:
        yield attrs.evolve(one, source=False) if one.phase is Phase.LOSS and one is not first else one


def epsilon_of_outputs(pair: Pair) -> float:
    """Return the largest machine epsilon of what either call gives, as it was recorded; 0 of nothing."""
    return epsilon_of(*(leaf.dtype for call in (pair.reference, pair.candidate) for leaf in call.outputs))


def places_of_losses(given: tuple[Given, Given]) -> tuple[Place, Place]:
    """Return where the functions that make the losses are defined."""
    ours, theirs = (Place("", location=one.loss_location) for one in given)
    return ours, theirs


def loss_terms(trace: Trace) -> Iterator[float]:
    """Yield how large the terms are, root of the sum of squares, that each output makes of the loss."""
    for leaf in (leaf for call in trace.tops for leaf in call.outputs):
        value, gradient = trace.value(leaf), trace.gradient(leaf)
        if value is not None and gradient is not None and is_float(value) and value.shape == gradient.shape:
            yield product_norm(value, gradient)


def unmatched_outputs(alignment: Alignment, step: int, judged: Callable[[int, Leaf], bool]) -> Iterator[Finding]:
    """Yield the tensors that one model returns and the other does not; those of one container are one finding.

    What is ``judged`` (side, tensor) by what the script makes of it is left out, where nothing stands at its place, or
    a loss stands where the other model returns what it is made of. So is a cache that one side alone returns: of that
    `cache_notes` tell.
    """
    root = alignment.of_reference(alignment.pairs[0].reference)
    assert root is not None
    left = without_counterpart(root)
    for ours, theirs in reshaped_outputs(root):
        numbers = [math.prod(one.shape) == 1 for one in (ours, theirs)]
        if numbers[0] != numbers[1] and judged(0, ours) and judged(1, theirs):
            continue
        left[0].remove(ours)
        left[1].remove(theirs)
        home, index = _maker(alignment, ours, theirs) or _where_shapes_change(alignment)
        given = home is root or index >= len(home.candidate.outputs)
        index = root.reference.outputs.index(ours) if given else index
        made = home.reference.outputs[index], theirs if given else home.candidate.outputs[index]
        finding = _missing(home, "other_output", sides_described(*made), made[0], index, None, step)
        yield within_code(finding, alignment, home)
    for index, (side, call) in enumerate((("reference", root.reference), ("candidate", root.candidate))):
        leaves = [leaf for leaf in left[index] if not judged(index, leaf)]
        for _, group in itertools.groupby(leaves, lambda leaf: first_step(leaf.path)):
            found = list(group)
            others = root.candidate.outputs if side == "reference" else root.reference.outputs
            data = {"side": side, "tensors": described(found), "others": described(others)}
            yield _missing(root, "missing_output", data, found[0], call.outputs.index(found[0]), side, step, len(found))


def reshaped_outputs(root: Pair) -> list[tuple[Leaf, Leaf]]:
    """Return the outputs that both models return at one place, in another shape or as another sort of dtype."""
    ours, theirs = without_counterpart(root)
    at = {leaf.path: leaf for leaf in theirs}
    return [(leaf, at[leaf.path]) for leaf in ours if leaf.path in at]


def without_counterpart(root: Pair) -> tuple[list[Leaf], list[Leaf]]:
    """Return the tensors that each model returns without a counterpart, but for caches of one side alone."""
    ours, theirs = (
        [one for one in _left(root, side) if one not in caches] for side, caches in enumerate(_lone_caches(root))
    )
    return ours, theirs


def makes_the_loss(traces: tuple[Trace, Trace], root: Pair, side: int, leaf: Leaf) -> bool:
    """Return whether a loss that was given for each side is made of a tensor, where they return nothing in common.

    By that it is judged: one model returns logits, the other what the loss is the mean of. The reference's gradients
    tell; in the candidate it is the one that takes gradients.
    """
    if root.outputs or any(trace.loss is None for trace in traces) or not traces[0].gradients:
        return False
    if side == 0:
        return leaf.token in traces[0].gradients
    return [one.token for one in root.candidate.outputs if one.differentiable] == [leaf.token]


def cache_notes(root: Pair) -> Iterator[Note]:
    """Yield the cache that one model returns, and the other does not: in this run it is made of what is compared."""
    for side, leaves in zip(SIDES, _lone_caches(root), strict=True):
        if leaves:
            yield Note("cache_alone", {"side": side, "tensors": described(leaves)})


def _lone_caches(root: Pair) -> tuple[list[Leaf], list[Leaf]]:
    """Return the tensors of a cache that the reference alone returns, and those that the candidate alone returns."""
    named = [[leaf for leaf in call.outputs if _CACHE.search(leaf.path)] for call in (root.reference, root.candidate)]
    if all(named):
        return [], []
    ours, theirs = (
        [] if {leaf.token for leaf in some} & known else some for some, known in zip(named, _known(root), strict=True)
    )
    return ours, theirs


def _maker(alignment: Alignment, ours: Leaf, theirs: Leaf) -> tuple[Pair, int] | None:
    """Return the innermost matched call that gives two tensors in one place, which the model then only hands on."""
    found: tuple[Pair, int] | None = None
    for pair in alignment.pairs:
        tokens = [leaf.token for leaf in pair.reference.outputs], [leaf.token for leaf in pair.candidate.outputs]
        both = ours.token in tokens[0] and theirs.token in tokens[1]
        if both and (index := tokens[0].index(ours.token)) == tokens[1].index(theirs.token):
            deeper = found is None or found[0].candidate in pair.candidate.ancestors()
            found = (pair, index) if deeper else found
    if found is None or found[0] is alignment.pairs[0] or other_shape(found[0], "inputs") is not None:
        return None
    return found


def _where_shapes_change(alignment: Alignment) -> tuple[Pair, int]:
    """Return the call that is given the shapes of the reference, and behind which all are others; and which output.

    Where shapes part and meet again before, as of tokens that one side flattens, that was meant.
    """
    root = alignment.pairs[0]
    found: tuple[Pair, int] | None = None
    for pair in sorted(alignment.pairs, key=lambda pair: pair.candidate.end):
        given, made = other_shape(pair, "inputs"), other_shape(pair, "outputs")
        if given is None:
            found = None if made is None else found or (pair, made)
    return found or (root, 0)


def _missing(
    root: Pair, kind: str, data: dict[str, Any], leaf: Leaf, index: int, side: str | None, step: int, count: int = 1
) -> Finding:
    what = What("output", leaf.path if count == 1 else first_step(leaf.path), index)
    evidence = Evidence(kind, data)
    cause = cause_between(root, Phase.FORWARD) if side is None else None
    rest: dict[str, Any] = {"cause": cause if cause is not None and cause.verified else None, "side": side}
    return finding_at(root, Phase.FORWARD, what, evidence, verdict=Verdict.UNMATCHED, source=True, step=step, **rest)


def _left(root: Pair, side: int) -> list[Leaf]:
    """Return the outputs of one side that have no counterpart, but for those that a known kind may leave out."""
    call = (root.reference, root.candidate)[side]
    kind = CATALOGUE.get(root.reference.module.kind or "")
    needed = kind.outputs if kind and kind.outputs is not None else None
    return [leaf for leaf in call.outputs[:needed] if leaf.token not in _known(root)[side]]


def _known(root: Pair) -> tuple[set[int], set[int]]:
    """Return the tokens of the outputs that have a counterpart, of both sides."""
    return {ours.token for ours, _ in root.made}, {theirs.token for _, theirs in root.made}
