"""Give a model the parameters and buffers of another, or of a recorded run, and say what became of them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from typing import Any

import attrs

from padiff.alignment import LayerMap, resolve
from padiff.distributed import PartSide, RankedRun
from padiff.engine._checks import with_known_options
from padiff.engine._diff import diff
from padiff.engine._force import Forced, force_model
from padiff.engine._open import finished_steps, opened
from padiff.errors import InputError
from padiff.forcing import RecordedSide, Side, weights_of
from padiff.isolation import side_of
from padiff.judging import missing_paths, parameter_findings
from padiff.parameters import (
    Correspondence,
    HeldUnit,
    Specials,
    held_of,
    in_real_numbers,
    matched_unrun,
    padded_rows,
    units_of,
    values_of,
    with_buffers,
)
from padiff.parameters import transfer as write_all
from padiff.report import Finding, Transfer
from padiff.trace import Run, Trace


@with_known_options
def transfer(
    source: Any,
    model: Any,
    inputs: Any = None,
    *,
    mapping: LayerMap | Mapping[Any, Any] | str | os.PathLike[str] | None = None,
    seed: int = 0,
) -> Transfer:
    """Copy the parameters and buffers of a model, or of a recorded run, to a model through each layer's own layout.

    ``source`` is a model of any framework, or a directory that `record` wrote, whose first step then tells: two runs on
    two clusters start equal. With ``inputs`` the matching rests on what both compute, and is verified: with a model by
    a diff of both, forward; with a recorded run in the same way, each call fed what was recorded: ``inputs`` are those
    of that first step then. Without, names, kinds, shapes and the order of definition decide, and nothing is verified.
    ``mapping`` is that of `diff`.

    In a job of several ranks each of them gives its own model: what lies on this rank is cut out of the whole, by the
    placements that the frameworks know. The run may be that of any other layout.

    Returns what `Report.transfer` is: how much was copied, what is verified, what is not, what found no counterpart.
    The source stays as it is. Raises `InputError` for a run that does not hold the values of its parameters.
    """
    if isinstance(source, str | os.PathLike):
        return _from_run(source, model, inputs, mapping)
    if inputs is None:
        ours, theirs = side_of(source), side_of(model)
        return _by_name(ours, theirs if _is_part(ours) else _whole(theirs), mapping)
    done = diff(source, model, inputs, phase="forward", mapping=mapping, seed=seed).transfer
    # A model that merged weights on purpose was left those: copying, which is asked for here, is verified by nothing.
    return _by_name(side_of(source), side_of(model), mapping) if done is None else done


def _is_part(side: Side) -> bool:
    """Return whether parts of a live model's parameters lie on other ranks."""
    return side.about.ranks is not None and bool(side.about.ranks.shapes)


def _whole(side: Side) -> Any:
    """Return a live model as one that is given whole parameters, of which this rank keeps its parts."""
    return side if side.about.ranks is None else PartSide(side, side.about.ranks)


def copied_by_name(source: Any, side: Any, mapping: Any) -> tuple[Correspondence, list[Finding]]:
    """Copy what a side holds to another one as names, kinds, shapes and the order of definition tell, without a run.

    Return what belongs to what, and what found no counterpart.
    """
    resolved = resolve(mapping, source, side)
    specials = Specials(source.about, side.about)

    def copied() -> Correspondence:
        return _copied(matched_unrun(*_units(source, side, specials), resolved), source, side)

    known, read = specials.retried(copied), partial(held_of, reference=source, candidate=side)
    return known, parameter_findings(known, read, resolved.ignored, copied=True, backward=False)


def _by_name(source: Any, side: Any, mapping: Any) -> Transfer:
    """Say what became of the parameters."""
    known, found = copied_by_name(source, side, mapping)
    copied = {link.candidate.parameter.path: link.candidate.parameter for _, link in known.links}
    gone = missing_paths(found)
    return Transfer(
        copied=len(copied),
        verified=0,
        unverified=tuple(copied),
        unmatched_reference=gone["reference"],
        unmatched_candidate=gone["candidate"],
        buffers=sum(parameter.buffer for parameter in copied.values()),
    )


def _units(source: Any, side: Any, specials: Specials) -> tuple[list[HeldUnit], list[HeldUnit]]:
    both = enumerate((source, side))
    ours, theirs = (units_of(one.about, specials.on(index), values_of(one)) for index, one in both)
    ours, theirs = in_real_numbers(ours, theirs)
    if isinstance(side, PartSide):  # other ranks may hold the other layers, or experts
        known, own = ({unit.path for unit in units} for units in (ours, theirs))
        ours = [unit for unit in ours if unit.path in own] if own < known else _of_numbers(ours, theirs)
    return ours, theirs


def _of_numbers(ours: list[HeldUnit], theirs: list[HeldUnit]) -> list[HeldUnit]:
    """Return the units of a whole model that may be those of a rank, which numbers its layers, and its experts, so.

    Names may be others: the first number of a path is that of a layer on both sides, the next one that of an expert.
    """
    held = _numbers(theirs)
    some = {depth for depth, numbers in _numbers(ours).items() if held.get(depth, numbers) < numbers}
    return [
        unit
        for unit in ours
        if all(number in held[depth] for depth, number in enumerate(_path_numbers(unit)) if depth in some)
    ]


def _numbers(units: list[HeldUnit]) -> dict[int, set[int]]:
    found: dict[int, set[int]] = {}
    for unit in units:
        for depth, number in enumerate(_path_numbers(unit)):
            found.setdefault(depth, set()).add(number)
    return found


def _path_numbers(unit: HeldUnit) -> list[int]:
    return [int(name) for name in unit.path.split(".") if name.isdecimal()]


def _copied(known: Correspondence, source: Any, side: Any) -> Correspondence:
    models, read = (source.about, side.about), (values_of(source), values_of(side))
    known = with_buffers(known, models, read, lambda *_: False, None)
    if isinstance(side, PartSide):
        _check_placed(known, source, side)
    write_all(known.matches, source, side)
    return known


def _check_placed(known: Correspondence, source: Any, side: PartSide) -> None:
    """Raise `InputError` where it is not known which part of the source's parameter this rank holds."""
    matched = [
        (one.parameter.path, link.candidate.parameter.path) for _, link in known.links for one in link.references
    ]
    ours, theirs = ({pair[index] for pair in matched} for index in (0, 1))
    left = [path for path, one in side.about.parameters.items() if path not in theirs and not one.buffer]
    side.require_placed(left, {path: one.shape for path, one in source.about.parameters.items() if path not in ours})


def _without_padding(run: Run, trace: Trace, side: Any, mapping: Any) -> Transfer:
    """Copy what a run holds; of a vocabulary that either side fills up with rows that no token names the real ones."""
    about, (ours, theirs) = run.about, padded_rows(run.about, side.about)
    if ours is not None and ours.unnamed(run.trace(run.steps[0])):
        about, trace = ours.about(about), ours.of(trace)
    elif theirs is not None:
        side = side.permuted({}, theirs.parameters)
    done = _by_name(RecordedSide(about, trace, weights_of(trace, None)), side, mapping)
    rows = theirs or ours
    cut = {} if rows is None else rows.parameters
    shapes = {(about if theirs is None else side.about).parameters[path].shape for path in cut}
    held = {path: side.about.parameters[path].shape for path in done.unverified}
    real = 0 if rows is None else rows.real
    return attrs.evolve(done, padded={path: real for path, shape in held.items() if {shape, shape[::-1]} & shapes})


def _from_run(path: str | os.PathLike[str], model: Any, inputs: Any, mapping: Any) -> Transfer:
    run = opened(path)
    first, ranked = finished_steps(run)[0], isinstance(run, RankedRun)
    trace = run.held(first).trace if isinstance(run, RankedRun) else run.trace(first)
    lacking = next((name for name in run.about.parameters if trace.weights.get(name, -1) < 0), None)
    if lacking is not None:
        msg = f"{run.where} does not hold the value of {lacking!r}"
        msg += ": its ranks' parts are not all there, or nothing says how they make a whole.\n" if ranked else ".\n"
        msg += f"Hint: record {'every rank' if ranked else 'it'} with values='tensors'."
        raise InputError(msg)
    side = side_of(model)
    if inputs is None:
        return _without_padding(run, trace, _whole(side), mapping)
    if _is_part(side):
        msg = "inputs= would run the model on this rank alone, and others hold parts of its parameters.\n"
        raise InputError(msg + "Hint: leave the inputs out; a comparison of the recorded runs verifies what is copied.")
    done = force_model(run, run.steps[:1], Forced(model, inputs, mapping=mapping, backward=False)).transfer
    assert done is not None
    return done
