"""Run ``padiff show``: print what a recorded run holds, as a tree."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from padiff.cli import _rank
from padiff.cli._parser import whole

if TYPE_CHECKING:
    from padiff.trace import Call, Leaf, Run, Summary, Trace

__all__ = ["add_arguments", "headline", "run"]

_UNITS = ("B", "kB", "MB", "GB", "TB")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.epilog = "exit status: 0, or 2 where the directory holds no run that can be read"
    add = parser.add_argument
    add("run", metavar="RUN", help="directory of the run")
    add("--step", metavar="N", type=whole(0), help="show this step (default: the first one)")
    _rank.add_arguments(parser)
    add("--module", metavar="PATH", help="show this module, and what is below it, alone")
    add("--traceback", action="store_true", help="show Python's traceback on an error")


def run(arguments: argparse.Namespace) -> tuple[int, str]:
    """Return the exit status, and what belongs on stdout."""
    from padiff.engine import opened
    from padiff.errors import InputError

    found = opened(arguments.run, arguments.rank)
    lines = [headline(found), *_ranks(found)]
    if found.steps:
        step = found.steps[0] if arguments.step is None else arguments.step
        trace = found.trace(step)
        calls = [call for call in trace.calls if _is_below(call.path, arguments.module)]
        if not calls:
            msg = f"step {step} of {found.where} calls no module {arguments.module!r}.\n"
            raise InputError(msg + "Hint: leave --module out to see all of them.")
        lines += ["", *_step(step, trace, calls)]
    return 0, "\n".join(lines)


def _ranks(run: Run) -> Iterator[str]:
    """Yield which ranks recorded a run of several, and why the others are not there."""
    from padiff.distributed import RankedRun

    if isinstance(run, RankedRun):
        groups = ", ".join(f"{axis} {run.grid.size(axis)}" for axis in run.grid.axes)
        yield f"ranks: {len(run.runs)} of {run.world} recorded ({groups}): {_ranges(sorted(run.runs))}"
        for rank, run_of_it in run.runs.items():
            if list(run_of_it.steps) != list(run.steps):
                yield f"  rank {rank} finished other steps than all did: {_ranges(run_of_it.steps)}"
        yield from (f"  rank {rank} is missing: {why}" for rank, why in run.missing)


def headline(found: Run) -> str:
    """Return what a run is, in one line."""
    about, steps = found.about, found.steps
    count = f"{len(steps)} step{'' if len(steps) == 1 else 's'}"
    parameters = [one for one in about.parameters.values() if not one.buffer]
    size = f", {_bytes(_size_of(found.where))} on disk" if os.path.exists(found.where) else ""
    return (
        f"{found.where}: {about.framework} {about.class_name}, {len(parameters)} parameters, {count} "
        f"({_ranges(steps)}), values: {found.values}{size}"
    )


def _step(step: int, trace: Trace, calls: Sequence[Call]) -> Iterator[str]:
    loss = "" if trace.loss is None else f", loss {trace.loss:.7g}"
    gradients = len(trace.gradients) + len(trace.parameter_gradients)
    yield f"step {step}: {len(trace.calls)} calls, {len(trace.values)} values, {gradients} gradients{loss}"
    lines, wrong = [], None
    top = min(_depth(call) for call in calls)
    for call in calls:
        indent = "  " * (_depth(call) - top)
        again = f" (call {call.ordinal + 1})" if call.ordinal else ""
        name = call.path
        if _depth(call) > top and call.parent is not None and call.path.startswith(f"{call.parent.path}."):
            name = call.path[len(call.parent.path) + 1 :]
        lines.append(f"{indent}{name or '(the model itself)'}{again}  {call.module.class_name.rpartition('.')[2]}")
        for what, leaves in (("takes", call.inputs), ("gives", call.outputs)):
            for leaf in leaves:
                summary = _summary(trace, trace.values.get(leaf.token))
                label = f"{indent}    {what} {leaf.path or 'it'}  {_kind(leaf)}"
                lines.append(f"{label}{_figures(summary)}{_gradient(trace, leaf)}")
                if wrong is None and summary is not None and (summary.nans or summary.infinities):
                    wrong = f"{call.path or '(the model itself)'}, which {what} {leaf.path or _kind(leaf)}"
        lines += list(_parameters(trace, call, indent))
    yield f"first NaN or Inf: {wrong}" if wrong else "no NaN or Inf"
    yield ""
    yield from lines


def _parameters(trace: Trace, call: Call, indent: str) -> Iterator[str]:
    """Yield the parameters of a module, at its first call."""
    for path, record in trace.parameters.items():
        holder, _, name = path.rpartition(".")
        if holder == call.path and not call.ordinal and not call.module.operation:
            value = _summary(trace, trace.weights.get(path))
            sent = _summary(trace, trace.parameter_gradients.get(path))
            gradient = "" if sent is None or sent.norm is None else f"  |gradient| {sent.norm:.3g}"
            yield f"{indent}    holds {name}  {record.dtype}{list(record.shape)}{_figures(value)}{gradient}"


def _summary(trace: Trace, key: int | None) -> Summary | None:
    from padiff.trace import summarized

    if key is None:
        return None
    return trace.summaries.get(key) if key < 0 else summarized(trace.array(key))


def _gradient(trace: Trace, leaf: Leaf) -> str:
    found = _summary(trace, trace.gradients.get(leaf.token))
    return "" if found is None or found.norm is None else f"  |gradient| {found.norm:.3g}"


def _figures(summary: Summary | None) -> str:
    if summary is None or summary.low is None or summary.high is None:
        return ""
    told = [f"{summary.low:.3g} to {summary.high:.3g}"]
    if summary.mean is not None:
        told.append(f"mean {summary.mean:.3g}")
    if summary.std is not None:
        told.append(f"std {summary.std:.3g}")
    for count, name in ((summary.nans, "NaN"), (summary.infinities, "Inf")):
        if count:
            told.append(f"{count} {name}")
    return f"  {', '.join(told)}"


def _kind(leaf: Leaf) -> str:
    return f"{leaf.dtype}{list(leaf.shape)}"


def _is_below(path: str, module: str | None) -> bool:
    return not module or path == module or path.startswith(f"{module}.")


def _depth(call: Call) -> int:
    return sum(1 for _ in call.ancestors())


def _ranges(steps: Sequence[int]) -> str:
    if len(steps) > 1 and list(steps) == list(range(steps[0], steps[-1] + 1)):
        return f"{steps[0]} to {steps[-1]}"
    return ", ".join(map(str, [*steps[:5], *(["..."] if len(steps) > 5 else [])])) or "none"


def _size_of(folder: str) -> int:
    if not os.path.isdir(folder):
        return os.path.getsize(folder)
    files = (os.path.join(where, name) for where, _, names in os.walk(folder) for name in names)
    return sum(os.lstat(file).st_size for file in files)


def _bytes(size: float) -> str:
    unit = 0
    while size >= 1000 and unit < len(_UNITS) - 1:
        size, unit = size / 1000, unit + 1
    return f"{size:.3g} {_UNITS[unit]}"
