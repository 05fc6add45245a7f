"""Compare what two models dumped, each layer with its counterpart, by the documented rule."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from padiff.alignment import Alignment, Pair, align, with_operations
from padiff.compat._folders import pairs_below
from padiff.compat._log import write
from padiff.compat._say import say
from padiff.compat._stored import StoredParameters, StoredRun, read_parameters, read_run
from padiff.errors import InputError
from padiff.numerics import close, difference
from padiff.parameters import Link, canonical, execution_order, match_units
from padiff.pytree import leaves
from padiff.recording import arguments

__all__ = ["check_dataloader", "check_grads", "check_params", "check_report", "check_weights"]

Array = NDArray[Any]
Path_ = str | os.PathLike[str]
Configuration = Mapping[str, Any] | None

_DUMPS = {"atol": 1e-4, "rtol": 1e-7, "compare_mode": "mean"}
_LOADERS = {"atol": 0.0, "rtol": 1e-7, "compare_mode": "mean"}
_PHASES = {"forward": ("forward",), "backward": ("backward",), "both": ("forward", "backward")}
_PARTED = {"weights": "weight_diff.log", "grads": "grad_diff.log"}


@attrs.frozen
class Rule:
    """Hold a classic rule: ``strict`` for each element, ``mean`` for the mean of the error."""

    atol: float
    rtol: float
    compare_mode: Any

    def close(self, ours: Array, theirs: Array) -> bool:
        """Return whether two arrays are within it."""
        return close(ours, theirs, atol=self.atol, rtol=self.rtol, mode=self.compare_mode)


def check_report(
    report_path_0: Path_, report_path_1: Path_, cfg: Configuration = None, diff_phase: str = "both"
) -> bool:
    """Compare two dumped reports, of every step and rank below the paths; print the first difference of each.

    ``cfg`` is ``{"atol": 1e-4, "rtol": 1e-7, "compare_mode": "mean"}`` unless given, and holds for this call alone.
    Returns whether every matched call's outputs, and in the backward pass its inputs' gradients, are within it.
    Raises `InputError` for paths without a report, and for steps or ranks that one side has alone.
    """
    rule = _rule(cfg, _DUMPS)
    if diff_phase not in _PHASES:
        msg = f"diff_phase is {diff_phase!r}.\nHint: one of {', '.join(map(repr, _PHASES))}."
        raise InputError(msg)
    results = [_same_run(*folders, rule, _PHASES[diff_phase]) for folders in pairs_below(report_path_0, report_path_1)]
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
    rule = _rule(cfg, _LOADERS)
    ends = object()
    ours, theirs = iter(first_loader), iter(second_loader)
    index = 0
    while True:
        batches = next(ours, ends), next(theirs, ends)
        if ends in batches:
            if batches[0] is batches[1]:
                return True
            say("check dataloader failed!!!", f"    one loader ends after {index} batches, the other goes on")
            return False
        wrong = _wrong_batch(*batches, rule)
        if wrong:
            say("check dataloader failed!!!", f"    batch {index}: {wrong}")
            return False
        index += 1


def _rule(cfg: Configuration, defaults: Mapping[str, Any]) -> Rule:
    unknown = [key for key in cfg or {} if key not in defaults]
    asked = {**defaults, **(cfg or {})}
    if unknown or asked["compare_mode"] not in ("mean", "strict"):
        seen = ", ".join(map(repr, unknown)) or f"compare_mode={asked['compare_mode']!r}"
        msg = f"cfg has {seen}.\nHint: atol, rtol, and compare_mode, 'mean' or 'strict'."
        raise InputError(msg)
    return Rule(**asked)


def _same_run(first: Path, second: Path, rule: Rule, phases: Sequence[str]) -> bool:
    """Compare one dumped run with another; print the first difference."""
    say(f"Checking report in {first} and {second}")
    ours, theirs = read_run(first), read_run(second)
    if len(ours.traces) != len(theirs.traces):
        say(f"    {ours.name} was called {len(ours.traces)} times, {theirs.name} {len(theirs.traces)} times")
        return False
    fixed = _mapped(ours, theirs)
    for mine, yours in zip(ours.traces, theirs.traces, strict=True):
        matches = match_units(execution_order(ours.units, mine), execution_order(theirs.units, yours), fixed)
        alignment = with_operations(align(mine, yours, [match.modules for match in matches], fixed), mine, yours)
        for phase in phases:
            apart = _first_apart(alignment, ours, theirs, (mine, yours), phase, rule)
            if apart is not None:
                say(f"The {phase} stage comparing failed !!!", *apart)
                return False
    return True


def _mapped(ours: StoredRun, theirs: StoredRun) -> dict[str, str]:
    """Return the mapped modules of both sides, in the order of the users' lists."""
    if len(ours.layer_map) != len(theirs.layer_map):
        counts = f"{ours.name} maps {len(ours.layer_map)} modules, {theirs.name} {len(theirs.layer_map)}"
        msg = f"{counts}; expected as many.\nHint: set_layer_map() of both models, in the same order."
        raise InputError(msg)
    return dict(zip(ours.layer_map, theirs.layer_map, strict=True))


def _first_apart(
    alignment: Alignment, ours: StoredRun, theirs: StoredRun, traces: tuple[Any, Any], phase: str, rule: Rule
) -> list[str] | None:
    """Return the lines of the first matched call that differs, the innermost first; None where all agree."""
    for pair in sorted(alignment.pairs, key=_FIRST[phase]):
        told = list(_apart(pair, traces, phase, rule))
        if told:
            a, b = pair.reference, pair.candidate
            return [
                f"    Diff found in `{phase.capitalize()} Stage`",
                f"    Type of layer is  : {a.module.class_name} vs {b.module.class_name}",
                f"    Route: {'.'.join(filter(None, (ours.name, a.path)))}",
                f"           {'.'.join(filter(None, (theirs.name, b.path)))}",
                *(f"    {text}" for text in told),
                *_stack(ours, a.frames),
                *_stack(theirs, b.frames),
            ]
    return None


_FIRST: Mapping[str, Callable[[Pair], tuple[int, int]]] = {
    "forward": lambda pair: (max(call.index for call in pair.candidate.subtree()), -pair.candidate.index),
    "backward": lambda pair: (-pair.candidate.index, 0),
}
"""Phase -> what sorts the calls as they end in it: what is inside before what holds it."""


def _apart(pair: Pair, traces: tuple[Any, Any], phase: str, rule: Rule) -> Iterator[str]:
    forward = phase == "forward"
    sides = (
        (pair.reference.outputs, pair.candidate.outputs) if forward else (pair.reference.inputs, pair.candidate.inputs)
    )
    for i, j in pair.outputs if forward else pair.inputs:
        read = [trace.value if forward else trace.gradient for trace in traces]
        mine, yours = read[0](sides[0][i]), read[1](sides[1][j])
        what = f"{'output' if forward else 'gradient of input'} {sides[1][j].path}".rstrip()
        if mine is None and yours is None:
            continue
        if mine is None or yours is None:
            if not forward:
                yield f"{what}: only one side has it"
            continue
        if not rule.close(mine, yours):
            yield f"{what}: {_figures(mine, yours)}"
    for i, j in pair.misfits if forward else ():
        yield f"output: shape {list(sides[0][i].shape)} vs {list(sides[1][j].shape)}"


def _stack(run: StoredRun, frames: Sequence[Any]) -> Iterator[str]:
    yield f"    {run.framework.capitalize()} Stacks:"
    yield from (f"        File {frame.file}: {frame.line}    {frame.function}" for frame in frames[::-1])


def _figures(ours: Array, theirs: Array) -> str:
    if ours.shape != theirs.shape:
        return f"shape {list(ours.shape)} vs {list(theirs.shape)}"
    apart = difference(ours, theirs)
    return f"max absolute difference {apart.max_abs:.6g}, relative L2 {apart.rel_l2:.3g}"


def _check(first: Path_, second: Path_, cfg: Configuration, targets: Sequence[str], *files: str) -> bool:
    rule = _rule(cfg, _DUMPS)
    wrong: dict[str, list[str]] = {}
    for folders in pairs_below(first, second):
        sides = [read_parameters(folder, *files) for folder in folders]
        for target in targets:
            found = list(_wrong_parameters(sides[0], sides[1], target, rule))
            if found:
                wrong.setdefault(_PARTED[target], []).extend([f"{folders[0]} vs {folders[1]}", *found])
                say(f"Diff found when compare {target}:", *(f"    {text}" for text in found))
            else:
                say(f"{target} compared.")
    if wrong:
        folder = Path.cwd() / "padiff_log"
        write(folder, {name: "\n".join(lines) + "\n" for name, lines in wrong.items()})
        say(f"Check reports at `{folder}`")
    return not wrong


def _wrong_parameters(ours: StoredParameters, theirs: StoredParameters, target: str, rule: Rule) -> Iterator[str]:
    """Yield a line for each parameter that differs or has no counterpart."""
    fixed = dict(zip(ours.layer_map, theirs.layer_map, strict=False))
    matches = match_units(ours.units, theirs.units, fixed)
    tied = {id(unit) for match in matches for unit in (match.reference, match.candidate)}
    for match in matches:
        for link in match.links:
            yield from _wrong_link(ours, theirs, link, target, rule)
        for role, held, mine in match.missing:
            yield f"{held.parameter.path} ({role}) is in {(ours if mine else theirs).name} only"
    for side in (ours, theirs):
        for unit in side.units:
            if id(unit) not in tied:
                names = ", ".join(held.parameter.path for held in unit.roles.values())
                yield f"{names} of {side.name} {'has' if len(unit.roles) == 1 else 'have'} no counterpart"


def _wrong_link(ours: StoredParameters, theirs: StoredParameters, link: Link, target: str, rule: Rule) -> Iterator[str]:
    arrays = []
    for side, held in ((ours, link.reference), (theirs, link.candidate)):
        file = getattr(side, target).get(held.parameter.path)
        arrays.append(None if file is None else canonical(held, side.read(file, held.parameter.dtype)))
    mine, yours = arrays
    names = f"{link.reference.parameter.path} vs {link.candidate.parameter.path}"
    if mine is None and yours is None:
        return
    if mine is None or yours is None:
        yield f"{names}: {(ours if mine is None else theirs).name} has no {target[:-1]}"
        return
    turned = [mine.T, mine] if link.open else [link.to_candidate(mine)]
    if not any(rule.close(one, yours) for one in turned):
        yield f"{names}: {_figures(turned[-1], yours)}"


def _wrong_batch(ours: Any, theirs: Any, rule: Rule) -> str | None:
    a, b = (dict(leaves(arguments((batch,))[0][0], _is_value)) for batch in (ours, theirs))
    if a.keys() != b.keys():
        return f"one holds {sorted(a)}, the other {sorted(b)}"
    return next((f"{path}: {told}".removeprefix(": ") for path in a if (told := _unlike(a[path], b[path], rule))), None)


def _is_value(value: Any) -> bool:
    return isinstance(value, np.ndarray | np.generic | str | bytes | int | float | complex)


def _unlike(ours: Any, theirs: Any, rule: Rule) -> str | None:
    if isinstance(ours, str | bytes) or isinstance(theirs, str | bytes):
        return None if ours == theirs else f"{ours!r} vs {theirs!r}"
    a, b = np.asarray(ours), np.asarray(theirs)
    return None if rule.close(a, b) else _figures(a, b)
