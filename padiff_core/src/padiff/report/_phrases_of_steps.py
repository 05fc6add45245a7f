"""Say what optimizers do otherwise: causes and evidence of what a step made of parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from padiff.report._templates import OTHER, Data, Phrase, few, setting


def settings(found: Data) -> str:
    """Return hyper-parameters that differ: name -> what each side has."""
    return "; ".join(
        f"{name}: {_share(both['reference'])} in the reference, {_share(both['candidate'])} in the candidate"
        for name, both in found.items()
    )


_MADE_OF = {
    "last": "those of the last backward pass alone (the ones before were cleared)",
    "uncleared": "added to those of the step before (which were not cleared)",
}


def _share(value: Any) -> str:
    """Return a setting in words: a text, or what share of the gradients an optimizer was given."""
    if not isinstance(value, Mapping):
        return str(value)
    if "ranks" in value:
        return setting(value)
    least, most, limit = value["least"], value["most"], value["limit"]
    if "of" in value:
        return _MADE_OF[value["of"]]
    share = f"{least:.4g}" if least == most else f"{least:.4g} to {most:.4g}"
    words = "as they arrived" if least == most == 1 else f"{share} times what arrived"
    return words if limit is None else f"{words}, no element beyond {limit:.4g}"


def _not_stepped(data: Data) -> str:
    other = OTHER[data["side"]]
    if data.get("script"):
        return f"it stays as it was in the {data['side']}, and does not in the {other}"
    if data.get("ungraded"):
        return (
            f"no gradient comes to it in this step: the {data['side']}'s optimizer leaves it as it is, the {other}'s "
            "steps it with zeros (by momentum, or decay)"
        )
    return f"the {data['side']}'s optimizer does not step what the {other}'s steps"


def _factor(times: float) -> str:
    """Return a factor in four digits, or in as many as tell it from one."""
    said = f"{times:.4g}"
    return f"{times:.9g}" if said == "1" else said


def _scaled(data: Data) -> str:
    if "least" in data:
        return (
            f"each step is another multiple of the reference's, {data['least']:.4g} to {data['most']:.4g} times, in "
            "the same direction: a factor that is computed for each parameter by itself"
        )
    if data.get("script"):
        return f"it goes {_factor(data['times'])} times as far as in the reference, in the same direction"
    return (
        f"the step is {_factor(data['times'])} times the reference's, in the same direction: gradients that one side "
        "clips, or a rate that no setting of the optimizers tells"
    )


CAUSES_OF_STEPS: Mapping[str, Phrase] = {
    "optimizer_settings": settings,
    "not_stepped": _not_stepped,
    "stepped_before": "the {side}'s optimizer steps before this call, the {other}'s does not",
    "step_scaled": _scaled,
    "average_keeps": (
        "an average of other weights, which keeps {reference:.4g} of itself in the reference, {candidate:.4g} in the "
        "candidate"
    ),
    "changed_between_steps": "the {side}'s script alone changes {names:few} between this step and the one before",
    "penalty": (
        "{times:.4g} times the {of} of parameters is added to their gradients in the {side} alone: "
        "a penalty in its loss"
    ),
}
EVIDENCE_OF_STEPS: Mapping[str, Phrase] = {
    "unverified_optimizer_settings": lambda data: f"settings differ: {settings(data)} (not verified as the cause)",
    "settings_of_ranks": lambda data: (
        "settings differ between ranks: " + "; ".join(f"{name}: {setting(own)}" for name, own in data.items())
    ),
    "held_by_none": "neither optimizer holds parameters of its model: no step was taken that could be compared",
    "stepped_alike": lambda data: (
        f"all {data['of']} parameters that are compared"
        if len(data["paths"]) == data["of"]
        else f"{len(data['paths'])} of {data['of']} parameters: {few(data['paths'])}"
    ),
    "update_of_runs": (
        "the reference's step is {step_rel_l2:.1e} of the weights, the candidate lands {rel_l2:.1e} away, "
        "further than their gradients differ"
    ),
    "given_otherwise": "of one optimizer with the same settings: what it keeps of the gradients shows in later steps",
    "no_gradient_differs": (
        "no gradient differs: the backward pass starts from the same, the number alone that step() was given differs"
    ),
    "same_settings": (
        "all settings of both optimizers that are known are the same, and so is what they were given: what they keep "
        "of earlier steps (moments, how many there were) differs, how they compute, or what a script makes of the "
        "weights besides (a limit, an average, weights that it puts back)"
    ),
    "weights_changed": (
        "behind the step its own {names:few} differ, were equal before it, and no optimizer steps them: what changes "
        "them, in front of the call?"
    ),
    "changed_within_step": (
        "an earlier call of it in this step agrees: its weights were changed in between, otherwise on each side?"
    ),
    "changed_by_script": (
        "neither run's optimizer steps it, nor does a call change it: the script does, as one that averages models"
    ),
}
