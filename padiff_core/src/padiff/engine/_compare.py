"""Compare two recorded runs: what diff() tells, as far as it shows where nothing can be run again."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any, get_args

import attrs

from padiff.alignment import LayerMap, resolve
from padiff.distributed import Padding, explained, merged_runs, padding_in_loss, rank_notes
from padiff.engine._checks import dtype_notes, with_known_options
from padiff.engine._force import Forced, force_model, forced_steps
from padiff.engine._matching import Matching
from padiff.engine._open import finished_steps, opened
from padiff.engine._other_readings import read_otherwise
from padiff.engine._recorded_rows import evidence_of, in_best_order, left_to_explain, read_in, with_rows
from padiff.engine._report import report_of
from padiff.engine._zeros import hiding
from padiff.errors import InputError
from padiff.forcing import RecordedSide, weights_of
from padiff.garbage import collecting_seldom
from padiff.judging import (
    Measuring,
    Meter,
    Recorded,
    TakenBack,
    axis_notes,
    measures_of,
    measuring,
    reordered_notes,
    rule_of,
    with_other_batches,
    without_settings_seen,
)
from padiff.numerics import SKETCH_ERROR
from padiff.options import DiffOptions
from padiff.parameters import Correspondence, Specials, padded_rows
from padiff.refinement import aligned
from padiff.report import SIDES, Figures, Finding, Note, RecordedRuns, Report, Verdict
from padiff.trace import Kept, Run, Trace, listed


@with_known_options
def compare(
    reference: str | os.PathLike[str] | Run,
    candidate: str | os.PathLike[str] | Run | None = None,
    *,
    mapping: LayerMap | Mapping[Any, Any] | str | os.PathLike[str] | None = None,
    tolerance: Mapping[str, Any] | None = None,
    step: int | None = None,
    executor: Executor | None = None,
    cache: str | os.PathLike[str] | None = None,
    force: Any = None,
    inputs: Any = None,
    loss: Any = None,
    optimizer: Any = None,
) -> Report:
    """Tell whether two recorded runs show the same, and if not, where they begin to differ.

    Both are directories that `record` wrote. No framework is needed, and nothing is run: a difference that is there in
    what a call was given may be the reason for the one in what it gives, and is told as such. ``mapping`` and
    ``tolerance`` are those of `diff`. Every step that both runs hold is compared, or ``step`` alone; once something
    differs, later differences may be consequences.

    With ``force``, a model or a `remote`, that model is run in place of a recorded candidate: each of its calls is fed
    what the reference's run recorded, so that differences are placed as `diff` does. It is given the weights and the
    inputs of each step that were recorded: those of the reference's run, or of the candidate's where one is named too,
    or ``inputs`` where its signature differs. Its backward pass starts from the recorded gradients of the outputs, or
    at ``loss``. ``optimizer`` steps it from the recorded gradients; the parameters that the run held after each step
    are compared then.

    Values are read and measured by a thread for each core, or by what ``executor`` runs: any of `concurrent.futures`,
    or that of a cluster (`distributed.Client.get_executor()`), whose workers reach the directories under the same
    paths. ``cache`` is a file that keeps what was measured: a comparison that was killed goes on from there, and one
    under another mapping or tolerance reads again what it has to.

    With ``force`` neither serves: what is compared is made here.

    Raises `InputError` where a directory holds no run, or the two have no step in common, `WorkerError` where the
    executor loses what it was given.
    """
    given = [one for one in (reference, candidate) if one is not None]
    runs = [_run_of(one) for one in given]
    if force is not None:
        for name, value in (("executor", executor), ("cache", cache)):
            if value is not None:
                msg = f"{name}= serves the values of two recorded runs, and with force= a model is run here.\n"
                raise InputError(msg + f"Hint: leave {name}= out, or record the model, and compare both runs.")
        asked = Forced(force, inputs, loss, optimizer, mapping, tolerance)
        steps = forced_steps(runs[0], step, optimizer=optimizer is not None)
        return force_model(runs[0], steps, asked, *runs[1:])
    for name, value in (("inputs", inputs), ("loss", loss), ("optimizer", optimizer)):
        if value is not None:
            msg = f"{name}= serves a model that is run, and none was given.\nHint: force=model."
            raise InputError(msg)
    if len(runs) < 2:
        msg = "there is no candidate to compare with.\nHint: name a second run, or give a model, force=model."
        raise InputError(msg)
    with collecting_seldom(), measuring(rule_of(tolerance), tolerance, executor, cache) as by:
        padding = _padding(runs)
        merged = merged_runs(runs, partial(resolve, mapping), padding)
        return _compared(merged, padding, mapping, tolerance, step, by)


def _padding(runs: Sequence[Run]) -> Padding:
    """Return what either model pads of its vocabulary, where what both did in a step shows that it is padding."""
    step = next((one for one in runs[0].steps if one in set(runs[1].steps)), None)
    if step is None or _weaker(runs) != "tensors":
        return None, None
    ours, theirs = padded_rows(runs[0].about, runs[1].about)
    shown = [
        rows if rows is not None and rows.unnamed(run.trace(step)) else None
        for rows, run in zip((ours, theirs), runs, strict=True)
    ]
    return shown[0], shown[1]


def _run_of(given: Any) -> Run:
    if isinstance(given, str | os.PathLike):
        return opened(given)
    if not hasattr(given, "steps"):
        msg = f"got a {type(given).__module__}.{type(given).__qualname__}; expected the directory of a recorded run.\n"
        raise InputError(msg + "Hint: padiff.diff(reference, candidate, inputs) compares models.")
    run: Run = given
    return run


def _compared(
    runs: Sequence[Run],
    padding: Padding,
    mapping: LayerMap | Mapping[Any, Any] | str | os.PathLike[str] | None,
    tolerance: Mapping[str, Any] | None,
    step: int | None,
    by: Measuring,
) -> Report:
    started = time.perf_counter()
    DiffOptions(1, "both", False, tolerance, 0)  # says what is wrong with a tolerance
    steps = _steps(runs, step)
    measures = measures_of(tolerance)
    found: Recorded | None = None
    known: Correspondence | None = None
    sides: Any = None  # what asks of them only what is known of the models, takes them for sides that run
    notes: list[Note] = []
    for number, both in _sides(runs, steps, padding):
        sides = both
        meter = Meter(sides, by)
        if found is None:
            resolved = resolve(mapping, *sides)
            taken_back = TakenBack(steps, lambda one: (runs[0].trace(one), runs[1].trace(one)))
            found = Recorded(by, measures, taken_back, ignored=resolved.ignored)
            notes += dtype_notes(*sides)
            notes += resolved.notes
            specials, whole = Specials(sides[0].about, sides[1].about), all(side.whole for side in sides)
            known = Matching(sides[0], sides[1], specials, resolved, whole).matched(evidence_of(sides, meter))
        assert known is not None
        known = aligned(attrs.evolve(known, calls=None), evidence_of(sides, meter))
        reading = read_otherwise(sides, meter, known, by)
        sides = both = reading.sides
        meter, known = reading.meter, reading.known
        notes += [note for note in reading.notes if note not in notes]
        if number == steps[0]:
            known = in_best_order(found, number, known, sides, meter)
        sides = sides[0], read_in(sides[1], known.axes)
        before = found.forked()
        known, read = found.gather(number, sides, known, meter), known
        further = with_rows(before, found, read, both, meter)
        if further is not None:
            again = before.forked()
            again.gather(number, (sides[0], read_in(both[1], further.axes)), further, meter)
            if left_to_explain(again) < left_to_explain(found):
                found, read = again, further
        notes += [*axis_notes(read), *reordered_notes(read)] if number == steps[0] else []
        found.findings[:] = padding_in_loss(found.findings, runs, number, padding)
        found.findings[:] = explained(found.findings, runs, [side.trace for side in both], number)
        found.findings[:] = with_other_batches(found.findings, runs[0].trace, steps, both[1].trace, number)
        found.notes = without_settings_seen(found.notes, found.findings)
        notes += rank_notes(runs, number) if number == steps[0] else []
    assert found is not None
    assert sides is not None
    assert known is not None
    if all(side.whole for side in sides) and not found.differs:
        zeros = hiding(known, sides[0], sides[0].trace)
        notes += [Note("zeros_hide", {"paths": zeros})] if zeros else []
    notes += [*_left_out(runs, step), *_about(runs, padding)]
    notes += [Note("forward_only", {"why": found.forward_only})] if found.forward_only else []
    values = _weaker(runs)
    if values != "tensors":
        notes += _suspects(sorted(found.findings, key=lambda one: one.step))
    if values == "sketch":
        found.findings = [attrs.evolve(one, figures=_estimated(one.figures)) for one in found.findings]
        found.output = _estimated(found.output)
    recorded = RecordedRuns(tuple(run.where for run in runs), values, tuple(steps))
    seconds = time.perf_counter() - started
    only = found.forward_only
    return report_of(found, sides, notes, tolerance, seconds, forward_only=only, recorded=recorded)


def _steps(runs: Sequence[Run], step: int | None) -> list[int]:
    """Return the steps to compare; raise `InputError` where there is none."""
    for name, run in zip(SIDES, runs, strict=True):
        if run.values == "structure":
            msg = f"the {name}'s run {run.where} holds no values (values='structure'): there is nothing to compare.\n"
            raise InputError(msg + "Hint: record it with values='tensors', or 'sketch'.")
        if step is not None and step not in run.steps:
            msg = f"the {name}'s run {run.where} has no step {step}; it has {listed(run.steps)}.\n"
            raise InputError(msg + "Hint: give a step that both runs have.")
    if step is not None:
        return [step]
    ours, theirs = (finished_steps(run, f"the {name}'s run ") for name, run in zip(SIDES, runs, strict=True))
    common = [one for one in ours if one in set(theirs)]
    if not common:
        held = " and ".join(f"{run.where} has {listed(run.steps)}" for run in runs)
        msg = f"the runs have no step in common: {held}.\nHint: record the same steps of both."
        raise InputError(msg)
    return common


def _left_out(runs: Sequence[Run], step: int | None) -> Iterator[Note]:
    """Yield what one side alone recorded."""
    for name, run, other in zip(SIDES, runs, reversed(runs), strict=True):
        alone = [one for one in run.steps if one not in set(other.steps)]
        if alone and step is None:
            yield Note("steps_of_one_side", {"side": name, "steps": alone})


def _about(runs: Sequence[Run], padding: Padding) -> Iterator[Note]:
    """Yield what is to be known of the runs themselves."""
    if runs[0].where == runs[1].where:
        yield Note("same_run", {"run": runs[0].where})
    for side, rows in zip(SIDES, padding, strict=True):
        if rows is not None:
            yield Note("padded_rows", {"side": side, "count": rows.count, "real": rows.real})


def _sides(
    runs: Sequence[Run], steps: Sequence[int], padding: Padding
) -> Iterator[tuple[int, tuple[RecordedSide, RecordedSide]]]:
    """Yield the steps with what both models did there, each with the values of parameters as far as they are known.

    What a model pads is left out, but of a step whose tokens name it.
    """
    earlier: list[tuple[int, list[Trace]]] = []
    firsts = [None if run.steps[0] == steps[0] else run.trace(run.steps[0]) for run in runs]
    for step in steps:
        found, traces = [], []
        for index, run in enumerate(runs):
            trace, about, rows = _of_side(SIDES[index], run, step), run.about, padding[index]
            if rows is not None and rows.unnamed(trace):
                trace, about = rows.of(trace), rows.about(about)
            before = next((held[index] for number, held in earlier if number == step - 1), None)
            if before is None and step != steps[0] and step - 1 in run.steps:  # the other run has no such step
                before = run.trace(step - 1)
            found.append(RecordedSide(about, trace, weights_of(trace, before), firsts[index]))
            traces.append(trace)
        earlier = [(step, traces)]
        yield step, (found[0], found[1])


def _of_side(name: str, run: Run, step: int) -> Trace:
    try:
        return run.trace(step)
    except InputError as error:
        msg = f"the {name}: {error}"
        raise InputError(msg) from error


def _estimated(figures: Figures | None) -> Figures | None:
    return figures and attrs.evolve(figures, estimated=SKETCH_ERROR)


def _suspects(findings: Sequence[Finding]) -> Iterator[Note]:
    """Yield which modules are to be recorded in full next, where not all was kept of the values of a source."""
    first = [one for one in findings if one.source] or [one for one in findings if one.verdict is Verdict.DIFFERS]
    if first:
        paths = {side: [getattr(one, side).path or "" for one in first] for side in SIDES}
        yield Note("record_next", {side: tuple(dict.fromkeys(found)) for side, found in paths.items()})


def _weaker(runs: Sequence[Run]) -> str:
    return max((run.values for run in runs), key=get_args(Kept).index)
