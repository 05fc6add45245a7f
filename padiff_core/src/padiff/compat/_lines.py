"""Tell a report in the lines that the documents show."""

from __future__ import annotations

import linecache
from collections.abc import Iterator, Sequence
from pathlib import Path

from padiff.compat._arguments import Arguments
from padiff.compat._struct import net_id, struct
from padiff.report import Finding, Phase, Place, Report, Verdict
from padiff.trace import Description

STAGES = {
    Phase.FORWARD: "Forward Stage",
    Phase.LOSS: "Loss",
    Phase.BACKWARD: "Backward Stage",
    Phase.BUFFER: "Buffers after the run",
    Phase.PARAMETER: "Weights before the run",
    Phase.UPDATE: "Weights after the step",
}
"""What the documents call a phase, in the order in which a run comes to them."""

_ORDER = (Phase.PARAMETER, *(phase for phase in STAGES if phase is not Phase.PARAMETER))
_FRAMEWORKS = {"torch": "Torch", "paddle": "Paddle", "mindspore": "MindSpore"}
_UNCOMPARED = (Verdict.UNMATCHED, Verdict.NOT_COMPARED, Verdict.IGNORED, Verdict.STOCHASTIC)
_MARGIN = " " * 7


def title(arguments: Arguments, index: int) -> str:
    """Return what a model is called: its class, and which argument it was."""
    return f"{arguments.names[index]}({arguments.form.value[index]})"


def opening(arguments: Arguments) -> Iterator[str]:
    """Yield what a call is going to do."""
    yield from (f"  {sentence}" for sentence in arguments.changed)
    rule = arguments.tolerance
    options = {
        "atol": "measured" if rule is None else rule["atol"],
        "rtol": "measured" if rule is None else rule["rtol"],
        "compare_mode": arguments.compare_mode,
        "auto_init": arguments.transfer,
        "single_step": arguments.single_step,
        "diff_phase": arguments.phase,
        "steps": arguments.steps,
        "use_loss": arguments.losses is not None,
        "use_opt": arguments.optimizers is not None,
    }
    yield "\n".join(["Your options:", "{", *(f"  {name}: `{value}`" for name, value in options.items()), "}"])
    yield "Start auto_diff, may need a while to generate reports..."


def outcome(report: Report, arguments: Arguments) -> Iterator[str]:
    """Yield what was copied, measured and compared."""
    copied = report.transfer
    if copied is not None:
        missing = (*copied.unmatched_reference, *copied.unmatched_candidate)
        failed = f"Assign weight Failed !!! No counterpart for {', '.join(missing)}"
        yield failed if missing else "Assign weight success !!!"
    found = report.output
    yield f"Max output diff is {found.max_abs}" if found else "Max output diff is unknown: nothing in them corresponds"
    yield ""
    phases = {finding.phase for finding in _differences(report)}
    backward = arguments.phase != "forward" and report.forward_only is None
    if any(is_of_weights(finding) for finding in _differences(report)):
        yield "Differences in weight or grad !!!"
    elif backward:
        yield "weight and weight.grad is compared."
    count = sum(number for verdict, number in report.counts.items() if verdict not in _UNCOMPARED)
    if arguments.phase != "backward" and not phases & {Phase.FORWARD, Phase.PARAMETER}:
        yield f"forward {count} steps compared."
    if backward and not phases:
        yield f"backward {count} steps compared."
    if report.forward_only is not None:
        yield f"backward steps are not compared: {report.forward_only}"


def closing(
    report: Report, arguments: Arguments, sides: tuple[Description, Description], folder: Path | None
) -> Iterator[str]:
    """Yield where the models differ first: stage, types, route, call stacks, trees. ``sides`` as the arguments."""
    if folder is not None:
        yield f"Check reports at `{folder}`"
        yield ""
    yield "FAILED !!!"
    finding = first_difference(report)
    if finding is None:
        yield (
            "    Diff found in the models' outputs: each layer is within the tolerance, what adds up is not "
            "(single_step=True leaves that out)"
        )
        return
    places = (finding.reference, finding.candidate)
    models = arguments.ordered(sides)
    ids = [net_id(model, place.path) for model, place in zip(models, places, strict=True)]
    types = [f"<class '{place.class_name}'>" for place in places]
    titles = arguments.ordered((title(arguments, 0), title(arguments, 1)))
    routes = [f"{name}.{place.path}" if place.path else name for name, place in zip(titles, places, strict=True)]
    yield f"    Diff found in `{STAGES[finding.phase]}` in step: {finding.step}, net_id is {ids[0]} vs {ids[1]}"
    yield f"    Type of layer is  : {types[0]} vs {types[1]}"
    yield f"    Route: {routes[0]}"
    yield f"           {routes[1]}"
    yield f"    Value: {_value(finding)}"
    shown = arguments.ordered(places)  # that is: in the order of the arguments again
    stacks = (_stack(model, place) for model, place in zip(sides, shown, strict=True))
    trees = (
        struct(model, title(arguments, index), place.path, whole=False)
        for index, (model, place) in enumerate(zip(sides, shown, strict=True))
    )
    yield "\n".join(["    Call stacks and model struct:", "", *(line for lines in (*stacks, *trees) for line in lines)])


def _value(finding: Finding) -> str:
    """Say which value differs, between which children, and why."""
    between = f" (between {finding.between[0]} and {finding.between[1]})" if finding.between else ""
    return f"{finding.what}{between}" + (f"; {finding.cause}" if finding.cause else "")


def _stack(model: Description, place: Place) -> Iterator[str]:
    """Yield the calling frames, the outermost first, each with its line of code."""
    name = _FRAMEWORKS.get(model.framework, model.framework)
    yield f"{name:<6} Stacks:"
    yield "=" * 25
    yield f"{_MARGIN}..."
    frames = place.stack[::-1] or ([place.location] if place.location else [])
    if not frames:
        yield f"{_MARGIN}(no line of the user's own calls it)"
    for frame in frames:
        where, _, function = frame.partition(" in ")
        file, _, line = where.rpartition(":")
        yield f"{_MARGIN}File {file}: {line}    {function}".rstrip()
        code = linecache.getline(file, int(line)).strip() if line.isdigit() else ""
        if code:
            yield f"{_MARGIN * 2}{code}"
    yield f"{_MARGIN}..."
    yield ""


def first_difference(report: Report) -> Finding | None:
    """Return the finding that a run comes to first, a source if there is one; None where there is none."""
    found = report.sources or _differences(report)
    return min(found, key=lambda finding: (finding.step, _ORDER.index(finding.phase)), default=None)


def is_of_weights(finding: Finding) -> bool:
    """Return whether a finding is about a parameter, its gradient, or what a run makes of it."""
    of_weights = (Phase.PARAMETER, Phase.UPDATE, Phase.BUFFER)
    return finding.phase in of_weights or finding.what.kind == "parameter_gradient"


def _differences(report: Report) -> Sequence[Finding]:
    return [finding for finding in report.findings if finding.verdict in (Verdict.DIFFERS, Verdict.UNMATCHED)]
