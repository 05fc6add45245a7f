"""Run ``padiff show``: print what a recorded run holds, as a tree."""

from __future__ import annotations

import argparse
import os
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from padiff.cli._parser import add_rank, whole
from padiff.paths import below, is_at

if TYPE_CHECKING:
    from padiff.trace import Call, Leaf, Run, Summary, Trace

_ROOT = "(the model itself)"
_UNITS = ("B", "kB", "MB", "GB", "TB")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.epilog = "exit status: 0, or 2 where the directory holds no run that can be read, or a damaged value"
    add = parser.add_argument
    add("run", metavar="RUN", help="directory of the run")
    add("--step", metavar="N", type=whole(0), help="show this step (default: the first one)")
    add_rank(parser)
    add("--module", metavar="PATH", help="show this module, and what is below it, alone")


def run(arguments: argparse.Namespace) -> tuple[int, str]:
    """Return the exit status, and what belongs on stdout."""
    from padiff.engine import opened
    from padiff.errors import InputError, did_you_mean

    found = opened(arguments.run, arguments.rank)
    lines = [headline(found), *_ranks(found)]
    if found.steps:
        step = found.steps[0] if arguments.step is None else arguments.step
        shown = _Shown(found.trace(step), found.trace(step - 1) if step - 1 in found.steps else None)
        calls = [call for call in shown.trace.calls if is_at(call.path, arguments.module or "")]
        if not calls:
            msg = f"step {step} of {found.where} calls no module {arguments.module!r}.\n"
            meant = did_you_mean(arguments.module, (call.path for call in shown.trace.calls))
            raise InputError(f"{msg}Hint: {meant or 'leave --module out to see all of them.'}".rstrip())
        tree = list(_step(step, shown, calls))
        lines += ["", *shown.damage, *tree]
        return 2 if shown.damage else 0, "\n".join(lines)
    return 0, "\n".join(lines)


def _ranks(run: Run) -> Iterator[str]:
    """Yield which ranks recorded a run of several, and why the others are not there."""
    from padiff.distributed import RankedRun
    from padiff.trace import spanned

    if isinstance(run, RankedRun):
        groups = ", ".join(f"{axis} {size}" for axis, size in run.grid.sizes.items())
        yield f"ranks: {len(run.runs)} of {run.world} recorded ({groups}): {spanned(sorted(run.runs))}"
        for rank, run_of_it in run.runs.items():
            if list(run_of_it.steps) != list(run.steps):
                yield f"  rank {rank} finished other steps than all did: {spanned(run_of_it.steps)}"
        yield from (f"  rank {rank} is missing: {why}" for rank, why in run.missing)


def headline(found: Run) -> str:
    """Return what a run is, in one line."""
    from padiff.trace import spanned

    about, steps = found.about, found.steps
    count = f"{len(steps)} step{'' if len(steps) == 1 else 's'}"
    parameters = [one for one in about.parameters.values() if not one.buffer]
    size = f", {_bytes(_size_of(found.where))} on disk" if os.path.exists(found.where) else ""
    return (
        f"{found.where}: {about.framework} {about.class_name}, {len(parameters)} parameters, {count} "
        f"({spanned(steps)}), values: {found.values}{size}"
    )


class _Shown:
    """A step, with what is known of its values."""

    def __init__(self, trace: Trace, earlier: Trace | None) -> None:
        from padiff.forcing import weights_of

        self.trace = trace
        self.weights = weights_of(trace, earlier)
        """Path of a parameter or buffer -> the trace that knows its value before the step, and the key there."""
        self._known: dict[tuple[int, int], Summary | None] = {}
        self.place = ""
        """Whose value is asked for, in words."""
        self.damage: list[str] = []
        """The values that cannot be read, in words."""

    def of(self, key: int | None, trace: Trace | None = None) -> Summary | None:
        """Return what is known of a value of the step, or of another trace."""
        from padiff.errors import InputError
        from padiff.trace import summarized

        trace = trace or self.trace
        if key is None or key < 0:
            return None if key is None else trace.summaries.get(key)
        if (id(trace), key) not in self._known:
            try:
                self._known[id(trace), key] = summarized(trace.array(key))
            except InputError as error:
                self._known[id(trace), key] = None
                self.damage.append(f"damaged: {self.place or 'a value'}: {str(error).partition(chr(10))[0]}")
        return self._known[id(trace), key]


def _step(step: int, shown: _Shown, calls: Sequence[Call]) -> Iterator[str]:
    trace = shown.trace
    loss = "" if trace.loss is None else f", loss {trace.loss:.7g}"
    gradients = len(trace.gradients) + len(trace.parameter_gradients)
    yield f"step {step}: {len(trace.calls)} calls, {len(trace.values)} values, {gradients} gradients{loss}"
    yield from _first_wrong(shown, calls)
    yield ""
    top = min(_depth(call) for call in calls)
    for call in calls:
        indent = "  " * (_depth(call) - top)
        again = f" (call {call.ordinal + 1})" if call.ordinal else ""
        around = call.parent if _depth(call) > top else None
        name = call.path if around is None else below(call.path, around.path) or call.path
        yield f"{indent}{name or _ROOT}{again}  {call.module.class_name.rpartition('.')[2]}"
        for what, leaves in (("takes", call.inputs), ("gives", call.outputs)):
            for leaf in leaves:
                figures = _figures(shown.of(trace.values.get(leaf.token))) + _gradient(shown, leaf)
                yield f"{indent}    {what} {leaf.path or 'it'}  {leaf.dtype}{list(leaf.shape)}{figures}"
        yield from _parameters(shown, call, indent)


def _first_wrong(shown: _Shown, calls: Collection[Call]) -> Iterator[str]:
    """Yield where the first NaN of some calls came up, and the first Inf, in the order in which the model ran."""
    from padiff.trace import in_time

    found: dict[str, str] = {}
    wanted = {call.index for call in calls}
    for held in (one for one in in_time(shown.trace) if one.call.index in wanted):
        shown.place = f"{held.call.path or _ROOT} {held.verb} {held.name or 'it'}"
        known = shown.of(held.key)
        if known is not None and known.wrong and known.wrong not in found:
            what = f"{held.name or 'it'}  {known.dtype}{list(known.shape)}"
            found[known.wrong] = f"first {known.wrong}: {held.call.path or _ROOT} {held.verb} {what}"
    whole = [*shown.trace.values.values(), *shown.trace.gradients.values()]
    none = "no NaN or Inf" if whole else "no values were kept: a NaN or Inf would not show"
    yield from (found[one] for one in ("NaN", "Inf") if one in found) if found else [none]


def _parameters(shown: _Shown, call: Call, indent: str) -> Iterator[str]:
    """Yield the parameters of a module, at its first call."""
    for path, record in shown.trace.parameters.items():
        holder, _, name = path.rpartition(".")
        if holder == call.path and not call.ordinal and not call.module.operation:
            trace, key = shown.weights.get(path, (shown.trace, None))
            shown.place = f"{path} or its gradient"
            sent = shown.of(shown.trace.parameter_gradients.get(path))
            gradient = "" if sent is None or sent.norm is None else f"  |gradient| {sent.norm:.3g}"
            figures = _figures(shown.of(key, trace))
            yield f"{indent}    holds {name}  {record.dtype}{list(record.shape)}{figures}{gradient}"


def _gradient(shown: _Shown, leaf: Leaf) -> str:
    found = shown.of(shown.trace.gradients.get(leaf.token))
    if found is None:
        return ""
    wrong = f" ({found.wrong})" if found.wrong else ""
    return f"  |gradient| {found.norm:.3g}{wrong}" if found.norm is not None else f"  |gradient|{wrong or ' unknown'}"


def _figures(summary: Summary | None) -> str:
    if summary is None:
        return ""
    figures = []
    if summary.low is not None and summary.high is not None:
        figures.append(f"{summary.low:.3g} to {summary.high:.3g}")
        figures += [] if summary.mean is None else [f"mean {summary.mean:.3g}"]
        figures += [] if summary.std is None else [f"std {summary.std:.3g}"]
    figures += [f"{count} {name}" for count, name in ((summary.nans, "NaN"), (summary.infinities, "Inf")) if count]
    return f"  {', '.join(figures)}" if figures else ""


def _depth(call: Call) -> int:
    return sum(1 for _ in call.ancestors())


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
