"""Compare what two models dumped, each layer with its counterpart, by the documented rule."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from padiff.alignment import Pair, Resolved, align, with_operations
from padiff.compat._archive import Arrays, DumpedParameters, read
from padiff.compat._folders import pairs_below
from padiff.compat._log import say, write_reports
from padiff.errors import InputError, check_one_of
from padiff.numerics import Array, close, difference, sample
from padiff.parameters import Link, canonical, match_units, pair_parameters, units_of
from padiff.pytree import leaves
from padiff.recording import arguments
from padiff.trace import Frame, ReportRecord, Trace, flow_of_calls

Path_ = str | os.PathLike[str]
Configuration = Mapping[str, Any] | None
Close = Callable[[Array, Array], bool]

_DUMPS = {"atol": 1e-4, "rtol": 1e-7, "compare_mode": "mean"}
_LOADERS = {"atol": 0.0, "rtol": 1e-7, "compare_mode": "mean"}
_PHASES = {"forward": ("forward",), "backward": ("backward",), "both": ("forward", "backward")}
_LOGS = {"weights": "weight_diff.log", "grads": "grad_diff.log"}


def check_report(
    report_path_0: Path_, report_path_1: Path_, cfg: Configuration = None, diff_phase: str = "both"
) -> bool:
    """Compare two dumped reports, of every step and rank below the paths; print the first difference of each.

    ``cfg`` is ``{"atol": 1e-4, "rtol": 1e-7, "compare_mode": "mean"}`` unless given, and holds for this call alone.
    Returns whether every matched call's outputs, and in the backward pass its inputs' gradients, are within it.
    Raises `InputError` for paths without a report, and for steps or ranks that one side has alone.
    """
    is_close = _rule(cfg, _DUMPS)
    check_one_of("diff_phase", diff_phase, _PHASES)
    phases = _PHASES[diff_phase]
    results = [_same_run(*folders, is_close, phases) for folders in pairs_below(report_path_0, report_path_1)]
    return all(results)


def check_params(report_path_0: Path_, report_path_1: Path_, cfg: Configuration = None) -> bool:
    """Compare weights and gradients of ``dump_params``; as `check_report` otherwise.

    Each parameter that differs is printed, and written to ``padiff_log`` in the working directory.
    """
    return _check(report_path_0, report_path_1, cfg, ("weights", "grads"), "params.json")


def check_weights(report_path_0: Path_, report_path_1: Path_, cfg: Configuration = None) -> bool:
    """Compare the weights of ``dump_weights`` or ``dump_params``, as `check_params`."""
    return _check(report_path_0, report_path_1, cfg, ("weights",), "weights.json", "params.json")


def check_grads(report_path_0: Path_, report_path_1: Path_, cfg: Configuration = None) -> bool:
    """Compare the gradients of ``dump_grads`` or ``dump_params``, as `check_params`."""
    return _check(report_path_0, report_path_1, cfg, ("grads",), "grads.json", "params.json")


def check_dataloader(first_loader: Any, second_loader: Any, **cfg: Any) -> bool:
    """Compare what two data loaders give, batch by batch; tensors of any framework, arrays, and nests of them.

    ``atol`` is 0, ``rtol`` 1e-7 and ``compare_mode`` ``mean`` unless given. Returns False, and prints where, at the
    first batch that differs, or where one loader ends before the other.
    """
    is_close = _rule(cfg, _LOADERS)
    ended = object()
    for index, batches in enumerate(zip_longest(first_loader, second_loader, fillvalue=ended)):
        if any(batch is ended for batch in batches):
            wrong: str | None = f"one loader ends after {index} batches, the other goes on"
        else:
            wrong = _wrong_batch(*batches, is_close)
            wrong = wrong and f"batch {index}: {wrong}"
        if wrong:
            say("check dataloader failed!!!", f"    {wrong}")
            return False
    return True


def _rule(cfg: Configuration, defaults: Mapping[str, Any]) -> Close:
    """Return what tells whether two arrays are within a classic rule."""
    unknown = [key for key in cfg or {} if key not in defaults]
    given = {**defaults, **(cfg or {})}
    if unknown or given["compare_mode"] not in ("mean", "strict"):
        seen = ", ".join(map(repr, unknown)) or f"compare_mode={given['compare_mode']!r}"
        msg = f"cfg has {seen}.\nHint: atol, rtol, and compare_mode, 'mean' or 'strict'."
        raise InputError(msg)
    return partial(close, atol=given["atol"], rtol=given["rtol"], mode=given["compare_mode"])


# Reports ----------------------------------------------------------------------------------------------------


def _same_run(first: Path, second: Path, is_close: Close, phases: Sequence[str]) -> bool:
    """Compare one dumped run with another; print the first difference."""
    say(f"Checking report in {first} and {second}")
    ours, theirs = _run_in(first), _run_in(second)
    if len(ours.traces) != len(theirs.traces):
        say(f"    {ours.name} was called {len(ours.traces)} times, {theirs.name} {len(theirs.traces)} times")
        return False
    if len(ours.layer_map) != len(theirs.layer_map):
        counts = f"{ours.name} maps {len(ours.layer_map)} modules, {theirs.name} {len(theirs.layer_map)}"
        msg = f"{counts}; expected as many.\nHint: set_layer_map() of both models, in the same order."
        raise InputError(msg)
    fixed = Resolved(dict(zip(ours.layer_map, theirs.layer_map, strict=True)))
    units = units_of(ours.about), units_of(theirs.about)
    for traces in zip(ours.traces, theirs.traces, strict=True):
        known = pair_parameters(*units, (flow_of_calls(traces[0]), flow_of_calls(traces[1])), fixed)
        alignment = with_operations(align(*traces, [match.modules for match in known.matches], fixed), *traces)
        for phase in phases:
            pairs = sorted(alignment.pairs, key=_FIRST[phase])
            pair, differences = next(
                ((pair, found) for pair in pairs if (found := list(_differences(pair, traces, phase, is_close)))),
                (None, []),
            )
            if pair is not None:
                say(f"The {phase} stage comparing failed !!!", *_place_of(pair, differences, ours, theirs, phase))
                return False
    return True


def _run_in(folder: Path) -> ReportRecord:
    run = read(ReportRecord, folder, "report.json")
    for trace in run.traces:
        trace.samples.update({token: sample(trace.array(key)) for token, key in trace.values.items()})
    return run


_FIRST: Mapping[str, Callable[[Pair], tuple[int, int]]] = {
    "forward": lambda pair: pair.candidate.end,
    "backward": lambda pair: (-pair.candidate.index, 0),
}
"""Phase -> what sorts the calls as they end in it: what is inside before what holds it."""


def _differences(pair: Pair, traces: tuple[Trace, Trace], phase: str, is_close: Close) -> Iterator[str]:
    forward = phase == "forward"
    ours, theirs = ((call.outputs if forward else call.inputs) for call in (pair.reference, pair.candidate))
    for i, j in pair.outputs if forward else pair.inputs:
        read_ours, read_theirs = ((trace.value if forward else trace.gradient) for trace in traces)
        mine, yours = read_ours(ours[i]), read_theirs(theirs[j])
        what = f"{'output' if forward else 'gradient of input'} {theirs[j].path}".rstrip()
        if mine is None or yours is None:
            if not forward and mine is not yours:
                yield f"{what}: only one side has it"
        elif not is_close(mine, yours):
            yield f"{what}: {_figures(mine, yours)}"
    for i, j in pair.misfits if forward else ():
        yield f"output: shape {list(ours[i].shape)} vs {list(theirs[j].shape)}"


def _place_of(
    pair: Pair, differences: list[str], ours: ReportRecord, theirs: ReportRecord, phase: str
) -> Iterator[str]:
    """Yield the documented lines about the first call that differs."""
    a, b = pair.reference, pair.candidate
    yield f"    Diff found in `{phase.capitalize()} Stage`"
    yield f"    Type of layer is  : {a.module.class_name} vs {b.module.class_name}"
    yield f"    Route: {'.'.join(filter(None, (ours.name, a.path)))}"
    yield f"           {'.'.join(filter(None, (theirs.name, b.path)))}"
    yield from (f"    {text}" for text in differences)
    yield from _stack(ours, a.frames)
    yield from _stack(theirs, b.frames)


def _stack(run: ReportRecord, frames: Sequence[Frame]) -> Iterator[str]:
    yield f"    {run.about.framework.capitalize()} Stacks:"
    yield from (f"        File {frame.file}: {frame.line}    {frame.function}" for frame in frames[::-1])


def _figures(ours: Array, theirs: Array) -> str:
    if ours.shape != theirs.shape:
        return f"shape {list(ours.shape)} vs {list(theirs.shape)}"
    found = difference(ours, theirs)
    return f"max absolute difference {found.max_abs:.6g}, relative L2 {found.rel_l2:.3g}"


# Parameters -------------------------------------------------------------------------------------------------


def _check(first: Path_, second: Path_, cfg: Configuration, targets: Sequence[str], *files: str) -> bool:
    is_close = _rule(cfg, _DUMPS)
    wrong: dict[str, list[str]] = {}
    for folders in pairs_below(first, second):
        ours, theirs = (read(DumpedParameters, folder, *files) for folder in folders)
        for target in targets:
            found = list(_wrong_parameters((ours, theirs), folders, target, is_close))
            if found:
                wrong.setdefault(_LOGS[target], []).extend([f"{folders[0]} vs {folders[1]}", *found])
                say(f"Diff found when compare {target}:", *(f"    {text}" for text in found))
            else:
                say(f"{target} compared.")
    if wrong:
        folder = Path.cwd() / "padiff_log"
        write_reports(folder, {name: "\n".join(lines) + "\n" for name, lines in wrong.items()})
        say(f"Check reports at `{folder}`")
    return not wrong


def _wrong_parameters(
    sides: tuple[DumpedParameters, DumpedParameters], folders: Sequence[Path], target: str, is_close: Close
) -> Iterator[str]:
    """Yield a line for each parameter that differs or has no counterpart."""
    ours, theirs = sides
    matches = match_units(ours.units, theirs.units, Resolved(dict(zip(ours.layer_map, theirs.layer_map, strict=False))))
    matched = {unit for match in matches for unit in (match.reference, match.candidate)}
    for match in matches:
        for link in match.links:
            yield from _wrong_link(sides, folders, link, target, is_close)
        for role, held, mine in match.missing:
            yield f"{held.parameter.path} ({role}) is in {sides[not mine].name} only"
    for side in sides:
        for unit in side.units:
            if unit not in matched:
                names = ", ".join(held.parameter.path for held in unit.roles.values())
                yield f"{names} of {side.name} {'has' if len(unit.roles) == 1 else 'have'} no counterpart"


def _wrong_link(
    sides: Sequence[DumpedParameters], folders: Sequence[Path], link: Link, target: str, is_close: Close
) -> Iterator[str]:
    arrays: list[Array | None] = []
    for side, folder, held in zip(sides, folders, (link.reference, link.candidate), strict=True):
        file = getattr(side, target).get(held.parameter.path)
        native = None if file is None else Arrays(folder).value(file, held.parameter.dtype)
        arrays.append(None if native is None else canonical(held, native))
    mine, yours = arrays
    names = f"{link.reference.parameter.path} vs {link.candidate.parameter.path}"
    if mine is None or yours is None:
        if mine is not yours:
            yield f"{names}: {sides[mine is not None].name} has no {target[:-1]}"
        return
    layouts = [way.to_candidate(mine) for way in link.ways[::-1]]
    if not any(is_close(one, yours) for one in layouts):
        yield f"{names}: {_figures(layouts[-1], yours)}"


# Data loaders -----------------------------------------------------------------------------------------------


def _wrong_batch(ours: Any, theirs: Any, is_close: Close) -> str | None:
    a, b = (dict(leaves(arguments((batch,))[0][0], _is_value)) for batch in (ours, theirs))
    if a.keys() != b.keys():
        return f"one holds {sorted(a)}, the other {sorted(b)}"
    found = ((path, _unlike(a[path], b[path], is_close)) for path in a)
    return next((f"{path}: {text}".removeprefix(": ") for path, text in found if text), None)


def _is_value(value: Any) -> bool:
    return isinstance(value, np.ndarray | np.generic | str | bytes | int | float | complex)


def _unlike(ours: Any, theirs: Any, is_close: Close) -> str | None:
    if isinstance(ours, str | bytes) or isinstance(theirs, str | bytes):
        return None if ours == theirs else f"{ours!r} vs {theirs!r}"
    a, b = np.asarray(ours), np.asarray(theirs)
    return None if is_close(a, b) else _figures(a, b)
