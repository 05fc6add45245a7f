"""Say in words how recorded steps are read that two scripts make in two ways: one table."""

from __future__ import annotations

from collections.abc import Mapping

from padiff.report._templates import OTHER, Phrase

READINGS: Mapping[str, Phrase] = {
    "slices": lambda data: (
        (
            f"the {data['side']} calls {repr(data['name']) if data['name'] else 'the model'} on one batch"
            if "name" in data
            else f"the {data['side']} makes a step of one batch"
        )
        + f", the {OTHER[data['side']]} {'on' if 'name' in data else 'of'} {data['count']} slices of it: "
        "read so in both"
        + (", and of the losses, which differ, their gradients are compared" if data["losses"] else "")
    ),
    "slices_cross": lambda data: (
        f"both call {repr(data['name']) if data['name'] else 'the model'} {data['count']} times on one batch, on other "
        "rows of it each time: read as the rows that two calls have in common"
        + (", and of the losses, which differ, their gradients are compared" if data["losses"] else "")
    ),
    "cut_short": lambda data: (
        f"the {data['side']} gives {repr(data['name']) if data['name'] else 'the model'} more than the "
        f"{OTHER[data['side']]} does: {data['count']} of what that has {len(data['rows'])} of; no gradient comes to "
        "what it makes of the rest, which is compared with nothing"
    ),
    "given_again": "the {side} gives {name:holder} all words in each call, the other side those that are new: read so",
    "rows_gathered": lambda data: (
        f"{repr(data['name']) if data['name'] else 'the model'} of the {data['side']} makes what it gives for all "
        f"rows, the {OTHER[data['side']]}'s for some; no gradient comes to the others, which are compared with nothing"
    ),
    "last_function": lambda data: (
        f"{repr(data['name']) if data['name'] else 'the model'} of the {data['side']} ends with {data['function']}, "
        "which the other side's script applies, or its loss: compared in front of it"
    ),
    "unused_passes": lambda data: (
        f"what some backward passes send in the {' and the '.join(data['sides'])} leads to no step, and is not compared"
    ),
    "decay_in_loss": (
        "the {side}'s loss holds a penalty on weights, whose gradient is {times:.4g} times each, and the {other}'s "
        "optimizer decays them by as much: both make the same step"
    ),
    "other_arguments": (
        "{name:holder} is given {reference} in the reference, {candidate} in the candidate, which are other arguments: "
        "what it makes of each agrees"
    ),
}
