"""Run auto_diff as the documents show it: one diff, told in the documented lines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from padiff.compat._arguments import Arguments, arguments_of
from padiff.compat._lines import closing, first_difference, is_of_weights, opening, outcome, title
from padiff.compat._log import FOLDERS, say, write_reports
from padiff.compat._module_lists import api_check
from padiff.compat._proxy import ProxyModel
from padiff.compat._struct import struct
from padiff.engine import diff
from padiff.isolation import side_of
from padiff.report import Finding, Phase, Report, Verdict, to_text
from padiff.trace import Description

_BEYOND = (Verdict.STOCHASTIC, Verdict.IGNORED, Verdict.PRECISION)
"""Where such a verdict stands, the models' outputs may differ for a reason that is no fault."""


def auto_diff(*models_and_inputs: Any, **keywords: Any) -> bool:
    """Compare two models; print what was found in the lines of PaDiff's documents, then padiff's own report.

    ``auto_diff(base_model, raw_model, inputs, loss_fns=None, optimizers=None, *, atol, rtol, auto_init=True,
    compare_mode="mean", diff_phase="both", single_step=False, steps=1, layer_map=None)``: the first model is right by
    definition, and its weights are copied to the second.

    ``auto_diff(layer, module, example_inp, auto_weights=True, steps=1, options={}, layer_map={}, loss_fn=None,
    optimizer=None)``, with atol, rtol, compare_mode, diff_phase and single_step in ``options``, and ``layer_mapping``
    for ``layer_map`` if you like: the second model is right, and its weights are copied to the first.

    The inputs are a pair of dicts, in the order of the models, and so are losses and optimizers. Without ``atol`` and
    ``rtol`` the models' own rounding decides; with one of them the classic rule does, the other being 0 or 1e-7.

    Returns whether the models are aligned. Reports of a failure go to ``padiff_log`` or, in the second form,
    ``diff_log``. Raises ``TypeError`` for unknown keywords, and `PadiffError`s as `padiff.diff` does.
    """
    arguments = arguments_of(models_and_inputs, keywords)
    say(*opening(arguments))
    reference, candidate = arguments.ordered(arguments.models)
    inputs, candidate_inputs = arguments.ordered(arguments.inputs)
    report = diff(
        reference,
        candidate,
        inputs,
        candidate_inputs=candidate_inputs,
        loss=None if arguments.losses is None else arguments.ordered(arguments.losses),
        optimizers=None if arguments.optimizers is None else arguments.ordered(arguments.optimizers),
        steps=arguments.steps,
        phase=arguments.phase,
        transfer=arguments.transfer,
        mapping=arguments.mapping,
        tolerance=arguments.tolerance,
        operations=api_check(),
    )
    passed = _passed(report, arguments)
    say(*outcome(report, arguments))
    if passed:
        say("SUCCESS !!!", "")
    else:
        sides = side_of(arguments.models[0]).about, side_of(arguments.models[1]).about
        say(*closing(report, arguments, sides, _written(report, arguments, sides)), "")
    print(report)
    for index, model in enumerate(arguments.proxies):
        if isinstance(model, ProxyModel):
            loss = None if arguments.losses is None else arguments.losses[index]
            backward = arguments.phase != "forward" and report.forward_only is None
            model.dump_run(arguments.inputs[index], loss, backward=backward)
    return passed


def _passed(report: Report, arguments: Arguments) -> bool:
    """Return the verdict: in single step each layer's own, else with what adds up over the layers."""
    if not report.aligned or arguments.single_step or arguments.phase == "backward":
        return report.aligned
    excused = any(report.counts.get(verdict.value) for verdict in _BEYOND)
    return report.output_within is not False or excused


def _written(report: Report, arguments: Arguments, sides: tuple[Description, Description]) -> Path | None:
    """Write the reports to the documented folder; say so and return None where it cannot be written to."""
    folder = Path.cwd() / FOLDERS[arguments.form]
    try:
        write_reports(folder, dict(_files(report, arguments, sides)))
    except OSError as error:
        say(f"Reports could not be written to `{folder}`: {error.strerror or error}")
        return None
    return folder


def _files(report: Report, arguments: Arguments, sides: tuple[Description, Description]) -> Iterator[tuple[str, str]]:
    """Yield each report's name and text."""
    yield "report.txt", to_text(report, color=False, width=0) + "\n"
    yield "report.json", report.to_json() + "\n"
    first = first_difference(report)
    places = (None, None) if first is None else (first.reference.path, first.candidate.path)
    for index, (model, path) in enumerate(zip(sides, arguments.ordered(places), strict=True)):
        name = title(arguments, index)
        lines = struct(model, name, path, whole=True)
        yield f"model_struct_{arguments.form.value[index]}.log", "\n".join(lines) + "\n"
    of_weights = [finding for finding in report.findings if is_of_weights(finding)]
    for name, gradients in (("weight_diff.log", False), ("grad_diff.log", True)):
        found = [finding for finding in of_weights if (finding.phase is Phase.BACKWARD) is gradients]
        if found:
            yield name, "\n".join(map(_weight, found))


def _weight(finding: Finding) -> str:
    """Return what there is to say of one parameter."""
    sides = (finding.reference, finding.candidate)
    rows = [f"{'=' * 25}", f"{finding.what}: {finding.verdict}"]
    rows += [f"    {side.path or '(the model itself)'}  {side.class_name}" for side in sides]
    figures = finding.figures
    rows += [f"    max absolute difference: {figures.max_abs}", f"    relative L2: {figures.rel_l2}"] if figures else []
    return "\n".join([*rows, *(f"    {text}" for text in finding.evidence), ""])
