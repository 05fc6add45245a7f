"""Say how two values that differ are alike."""

from __future__ import annotations

from collections.abc import Mapping

from padiff.report._templates import Data, Phrase


def _multiple(data: Data) -> str:
    if data["factor"] == -1:
        return "the same with the other sign"
    also = f" ({data['also']})" if data["also"] else ""
    return f"the candidate's is {data['factor']:.6g}{also} times the reference's"


def _lacks(data: Data) -> str:
    value = f"{'the gradient of the ' if data['gradient'] else 'the '}{data['value']}"
    times = "" if data["whole"] else f"{abs(data['factor']):.6g} times "
    if data["factor"] < 0:
        return f"the candidate's has {times}{value} in addition"
    path = ": a path that is detached?" if data["gradient"] else ""
    return f"what the candidate's lacks is {times}{value}{path}"


def _scaled_and_shifted(data: Data) -> str:
    least, most, low, high = (data[name] for name in ("least", "most", "low", "high"))
    if not data["axes"]:
        return f"the candidate's is {least:.6g} times the reference's, {low:+.6g}"
    return (
        f"each index of axis {data['axes'][0]} is scaled and shifted by itself: {least:.4g} to {most:.4g} times the "
        f"reference's, {low:+.4g} to {high:+.4g}: by another mean and deviation?"
    )


def _in_part(data: Data) -> str:
    first, last = data["first"], data["last"]
    where = f"index {first}" if first == last else f"indices {first} to {last}"
    return f"only at {where} of axis {data['axis']}, which has {data['extent']}"


_ROWS = 8
"""Rows whose order is told."""
EVIDENCE_OF_VALUES: Mapping[str, Phrase] = {
    "mistaken_gradient": "the candidate has the reference's gradient of the {value} there: it comes back another way",
    "mistaken_value": "the candidate has the reference's {value} there: another tensor, or two in another order",
    "functions": "{reference} of the {value} in the reference, {candidate} of it in the candidate",
    "no_gradient_comes": "no gradient comes to it in the {side}: detached (detach, stop_gradient, no_grad) there?",
    "parameter_without_gradient": (
        "no gradient comes to it in the {side}: not used there, or detached (detach, stop_gradient, no_grad)?"
    ),
    "all_zeros": "nothing but zeros in the {side}",
    "multiple": _multiple,
    "offset": "the candidate's is the reference's {more:+.6g}, in every element",
    "lacks": _lacks,
    "in_part": _in_part,
    "small_part": "compared by themselves: {count} of the {extent} places of axis {axis}, all far smaller than others",
    "factor_of_each": (
        "each index of axes {axes:list} has a factor of its own, {least:.4g} to {most:.4g} times the reference's"
    ),
    "one_of_each_row": (
        "in each row one element is the reference's {one:+.4g}, all others {others:+.4g}: "
        "targets that one side smooths?"
    ),
    "scaled_and_shifted": _scaled_and_shifted,
    "rows_moved": lambda data: (
        f"the same rows in another order: {', '.join(map(str, data['rows'][:_ROWS]))}"
        + (", ..." if len(data["rows"]) > _ROWS else "")
    ),
    "shifted": "the candidate's is the reference's, shifted by {step:+d} along axis {axis}",
    "axes_exchanged": "the candidate's is the reference's with axes {axes[0]} and {axes[1]} exchanged",
    "reversed": "the candidate's is the reference's, reversed along axis {axis}",
    "other_order": "the same numbers in another order: a transpose, a reshape, another way to split heads?",
}
