"""Say what to do next, where that follows from what was found."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from padiff.report import _words as words
from padiff.report._finding import Finding, Phase, Verdict
from padiff.report._lines import Line, several
from padiff.report._report import Report


def advice(report: Report) -> Iterator[Line]:
    """Yield the next step for each sort of source that there is, where one follows."""
    if report.sources and report.recorded is not None:
        said = [text for applies, text in _RECORDED if any(applies(source) for source in report.sources)]
        said = said or [text for place, text in _IN_SCRIPTS.items() if place in map(_place_in_script, report.sources)]
    elif report.sources:
        said = [text for applies, text in _NEXT if any(applies(source) for source in report.sources)]
        if not report.operations and any(map(_is_region, report.sources)):
            said.append(_CLOSER)
        if report.transfer is not None and any(one.is_caused_by("missing_module") for one in report.sources):
            said.append(_OVERWRITTEN)
    elif report.unmatched:
        said = [text for applies, text in _UNMATCHED if any(map(applies, report.unmatched))]
    else:
        said = [_LOOK] if report.victims else []
    yield from several("next", said)


def _is_region(source: Finding) -> bool:
    return source.between is not None and source.phase is Phase.FORWARD and source.cause is None


def _place_in_script(source: Finding) -> Phase | None:
    """Return whether it is a script's loss, or what it does to weights; None for what the model does."""
    loss = source.rests_on("sent_alike") or source.rests_on("sent_by_row") or source.is_caused_by("loss_scaled")
    return Phase.LOSS if loss else source.phase if source.phase in _IN_SCRIPTS else None


def _caused_by(name: str) -> Callable[[Finding], bool]:
    return lambda source: source.is_caused_by(name)


_is_given, _is_constant, _is_tied, _is_merged = map(_caused_by, ("inputs", "constant", "tied", "merged"))
_is_lacking = _caused_by("missing_parameter")
"""Whether a layer lacks a parameter that its counterpart has."""


def _is_given_later(source: Finding) -> bool:
    """Return whether a script gives something else to a later call of a step: it may make it of what others gave."""
    place = source.candidate
    return _is_given(source) and bool(place.micro_batch if place.micro_batch is not None else place.call)


def _is_of_mode(source: Finding) -> bool:
    """Return whether a module is in training mode on one side alone, and differs in nothing else."""
    return source.cause is not None and source.cause.name == "settings" and [*source.cause.parameters] == ["training"]


def _is_told_above(source: Finding) -> bool:
    """Return whether what differs is no code, nor a setting of one layer: its own advice says what to do."""
    return _is_given(source) or _is_merged(source) or _is_of_mode(source)


def _is_of_weights(source: Finding) -> bool:
    """Return whether the values of a parameter differed before any run."""
    held = source.verdict is Verdict.DIFFERS and source.phase is Phase.PARAMETER and source.figures is not None
    return held and not (_is_constant(source) or _is_tied(source))


def _is_extra_call(finding: Finding) -> bool:
    """Return whether it is on a call that one side's script alone makes."""
    return finding.rests_on("extra_call")


def _is_mute(source: Finding) -> bool:
    """Return whether something has no counterpart, and not for its shape, or since a layer lacks a parameter."""
    lacking = _is_lacking(source) or _is_extra_call(source)
    other = words.is_of_other_shape(source) or words.is_of_other_sort(source)
    return source.verdict is Verdict.UNMATCHED and not (lacking or other)


_IN_SCRIPTS = {
    Phase.LOSS: (
        "compare how both scripts make the loss of what the model gives, put it right in the candidate's, record it "
        "again, and compare again"
    ),
    Phase.UPDATE: (
        "put right in the candidate's script what changes the weights (the optimizer, and what is done to gradients "
        "before it), record it again, and compare again"
    ),
    None: (
        "fix the sources in the candidate, the first one first, record it again, and compare again; force=model "
        "(--force), where the candidate can run, feeds each call by itself and names every source at once"
    ),
}
"""What a script does around its model, nothing shows that runs the model alone."""
_MATCH = "match what is unmatched with a padiff.LayerMap, or ignore it: it never passes"
_CLOSER = "operations=True compares the functions and operators of a module's own code one by one"
_OVERWRITTEN = (
    "where one side's weights are merged on purpose (a norm folded into a layer, LoRA), nothing can be copied: "
    "compare a candidate that holds them with transfer=False"
)
_CALLS = "make the same calls in both scripts, and record them again"
_LOOK = "look at the first value that differs, and at the parameters that are not verified"
_UNMATCHED = (
    (_is_extra_call, _CALLS),
    (lambda f: not (_is_extra_call(f) or words.is_uncompared(f)), _MATCH),
)
_RECORDED = (
    (
        _is_given_later,
        "compare what both scripts give that call: their batches, and what they make of what the model gave before; "
        "put it right in the candidate's, record it again, and compare again",
    ),
    (
        lambda f: _is_given(f) and not _is_given_later(f),
        "give both scripts the same batches, in one order, and record them again; nothing else is said yet",
    ),
    (
        _is_of_weights,
        "start both runs from the same weights: padiff.transfer(reference_run, port) before the port's loop; record it "
        "again, and compare again",
    ),
    (_is_extra_call, _CALLS),
    (_is_mute, _MATCH),
)
"""What comes before the sources in the code can be told."""
_NEXT = (
    (_is_given, "give both models the same inputs, and compare again"),
    (
        _is_merged,
        "merge these weights anew, of all that the reference has there (its scale, epsilon, mean, bias), and compare "
        "again; where none were to be merged, load the reference's",
    ),
    (
        _is_of_weights,
        "load the reference's values into the candidate, or let padiff copy them: leave out transfer=False; "
        "weights that were never loaded say nothing about a port",
    ),
    (
        lambda f: f.is_caused_by("constant"),
        "put right what the candidate makes the constant of: it is computed, so padiff does not copy it",
    ),
    (
        lambda f: f.is_caused_by("tied"),
        "share in the candidate what the reference shares, and nothing else, and compare again",
    ),
    (_is_of_mode, "call .eval(), or .train(), on both models (MindSpore: set_train), and compare again"),
    (words.is_of_other_shape, "build both models in the same sizes, and compare again"),
    (_is_mute, _MATCH),
    (
        lambda f: f.is_caused_by("missing_parameter"),
        "build the candidate's layer with the parameters that the reference's has, and compare again",
    ),
    (
        lambda f: (
            words.is_of_other_sort(f)
            or (f.verdict is Verdict.DIFFERS and f.phase is not Phase.PARAMETER and not _is_told_above(f))
        ),
        "fix each source in the candidate, in any order: it was given the reference's own values, so the code or the "
        "setting right there differs",
    ),
)
