"""Say in words what findings and notes hold as data: which value, why, on what evidence. One table for each.

`_templates` fills them.
"""

from __future__ import annotations

from collections.abc import Mapping

from padiff.report._phrases_of_notes import NOTES
from padiff.report._phrases_of_ranks import OF_RANKS
from padiff.report._phrases_of_steps import CAUSES_OF_STEPS, EVIDENCE_OF_STEPS, settings
from padiff.report._phrases_of_values import EVIDENCE_OF_VALUES
from padiff.report._templates import OTHER, Data, Phrase, all_causes, few, ranks

# -- values

VALUES = {
    "output": "output {name}",
    "output_gradient": "gradient of output {name}",
    "free_output": "output in the free run",
    "input": "input {name!r}{of}",
    "input_gradient": "gradient of input {name!r}{of}",
    "parameter": "parameter {name}",
    "parameter_gradient": "gradient of {name}",
    "gradients": "gradient of {name}",
    "buffers": "{name} after the run",
    "updated_parameter": "{name} after the step",
    "updates": "step of {name}",
    "buffer": "buffer {name}",
    "rewritten_weight": "{name} after the run",
    "updated_buffer": "buffer {name} after the run",
    "loss": "loss",
    "number": "number at output {name}",
}

# -- causes


def _both_ways(data: Data) -> str:
    """Return how each side calls operations, and which values are the same on both, where these have letters."""
    same = data.get("same", ())
    told = f" ({', '.join(same)}: the same {'values' if len(same) > 1 else 'value'} on both sides)" if same else ""
    return f"{data['reference']} in the reference, as {data['candidate']} in the candidate{told}"


CAUSES: Mapping[str, Phrase] = {
    **OF_RANKS,
    **CAUSES_OF_STEPS,
    "micro_batches": lambda data: (
        f"a step has {data['reference']} micro-batches in the reference, {data['candidate']} in the candidate: "
        + (
            "slices of one batch, which are not compared; cut it alike in both scripts, and record again"
            if data.get("slices")
            else "what all of them lead to cannot be compared"
        )
    ),
    "settings": settings,
    "dtypes": "{candidate} in the candidate, {reference} in the reference",
    "loss_scaled": (
        "the backward pass starts from {times:g} times the reference's gradients: a loss that is scaled (a sum for a "
        "mean, a gradient scaler); that it is taken back before the step does not show, record both in one scale"
    ),
    "loss_of_each_batch": lambda data: (
        "of each micro-batch the backward pass starts from a multiple of its own of the reference's gradients: "
        f"{few([f'{one:g}' for one in data['times']])} times (a mean over what each holds, on one side over all?)"
    ),
    "arguments": lambda data: f"called as {_both_ways(data)}",
    "kernel": "{name} gives something else of the same values, called alike: its kernel, or a default that it has",
    "code": lambda data: f"computed as {_both_ways(data)}",
    "code_alone": "{called:all} in the {side} only",
    "cut": "no gradient goes through {called} in the {side} only",
    "cut_given": "no gradient goes through to what {called} is given in the {side} only",
    "constants": "a tensor made of no input: {reference} in the reference, {candidate} in the candidate",
    "taken": lambda data: (
        "{taker} takes {reference} in the reference, {candidate} in the candidate"
        if data["reference"] != data["candidate"]
        else "{taker} takes another value in the candidate than in the reference: both are {candidate}"
    ).format(**data),
    "several": lambda data: all_causes(data["causes"]),
    "calls": "{name:module} is called {reference:times} in the reference, {candidate:times} in the candidate",
    "randomness": "the {side} samples random numbers there (a dropout?), the {other} does not",
    "dropout": lambda data: (
        f"dropout: {'; '.join('{path!r} ({class_name}, p={p:.6g})'.format(**call) for call in data['calls'])} "
        f"in the {data['side']}, nothing like it in the {OTHER[data['side']]}"
    ),
    "inputs": "the inputs themselves differ, in {name!r}",
    "frozen": "{name} is frozen in the {side}, so that it gets no gradient there, and trained in the {other}",
    "missing_module": "{name} ({kind}) is in the {side} only",
    "missing_parameter": "{name}: present in the {side}, absent or of another shape in the {other}",
    "constant": (
        "not trained: each model computes it for itself, and keeps its own; with the reference's values "
        "what uses it agrees"
    ),
    "recomputation": "what the {side} computes again in its backward pass is not what it computed forward",
    "kink": (
        "slopes at exactly zero: {paths:few} are zeros, and with other values there, on both sides, all gradients "
        "agree (a LeakyReLU at zero has the slope 1 in one framework, its negative slope in another)"
    ),
    "transposed": "equal when transposed",
    "rows_in_another_order": lambda data: (
        "the reference's, with its "
        + " and ".join(
            f"{axis} in another order ({', '.join(map(str, data[axis]))}, ...)"
            for axis in ("rows", "columns")
            if data.get(axis)
        )
    ),
    "merged": lambda data: (
        f"{few(data['candidate'])} of the candidate {'do' if len(data['candidate']) > 1 else 'does'} not make what "
        f"{few(data['reference'])} of the reference make together: merged in another way (scale, epsilon, mean), or "
        "other weights"
    ),
    "other_rows": lambda data: (
        f"right where the rows of {' and '.join(data['layers'])} are in another order "
        f"({', '.join(map(str, data['rows']))}, ...)"
        + (
            ": does one side turn neighbouring channels (rotary positions), the other those half a head apart? Convert "
            "the weights so, or turn what the reference turns"
            if len(data["layers"]) > 1
            else ""
        )
    ),
    "tied": "tied in the {side}, not tied in the {other}",
}

# -- evidence


def _refused(data: Data) -> str:
    """Return why a call cannot be replayed in a wider type, or does not tell anything there."""
    if data["refused_by"] is None:
        return "the value does not arise when the call is replayed"
    if data["error"] == "recorded":
        return "the reference was recorded"
    return f"the {data['refused_by']} cannot run there ({data['error']})"


def _one_side(data: Data) -> str:
    side = data["side"]
    return (
        f"measured against the {side} alone in float64 ({_refused(data)}): "
        f"the {side} natively {data['floor']:.1e} away, the other {data['error_rel_l2']:.1e}"
        + (f"; on inputs close by the {side} {data['nearby']:.1e}" if "nearby" in data else "")
    )


def _other_shape(data: Data) -> str:
    ours, theirs = (list(data["shapes"][side]) for side in OTHER)
    first, second = (data["paths"][side] for side in OTHER)
    layout = ""
    if data["laid_out"] != data["shapes"]:
        layout = "; in one layout {} and {}".format(*(list(data["laid_out"][side]) for side in OTHER))
    if first == second:
        return f"{first}: {ours} in the reference, {theirs} in the candidate{layout}"
    return f"{first} {ours} in the reference, {second} {theirs} in the candidate{layout}"


def _unexplained(data: Data) -> str:
    if data["by"] == "distribution":
        return f"each call by itself is right, yet the outputs differ: {EXPLAINED['distribution']}"
    where = {"loss": "the loss", "backward": "a gradient"}.get(data["phase"], "their outputs")
    return (
        f"each call by itself is right, yet the models, each run freely, differ by {data['native']:.1e} in {where}, "
        f"and rounding does not explain it: {EXPLAINED[data['by']].format(**data)}"
    )


EXPLAINED = {
    "sight": "no further apart than one rounding",
    "float64": "{figure:.1e} in float64, where rounding explains {bound:.1e}",
    "disturbed": "disturbed by one epsilon at every call, the reference moves by enough for {bound:.1e}",
    "candidate": "disturbed by one epsilon at every call, the candidate moves by enough for {bound:.1e}",
    "evaluation": "{figure:.1e} in evaluation mode, where rounding explains {bound:.1e}",
    "random": "the reference disagrees with itself under another seed, in evaluation mode too; over seeds, both agree",
    "distribution": "over 16 seeds each, they are of two distributions (permutation test, wrong once in 5,000 times)",
    "infinite": "NaN or Inf on one side alone",
}
"""What the free runs rest on, by `FreeRuns.by`."""

EVIDENCE: Mapping[str, Phrase] = {
    "unexplained": _unexplained,
    "taken_unsummed": "{call!r} takes each rank's part for the whole, and gives another value than the other side",
    "inputs_of_ranks": "{cause}",
    "as_many_ranks": lambda data: (
        f"{ranks(data['ranks'])} are as many: {'summed' if data['summed'] else 'averaged'} over them once too often?"
    ),
    "ranks_disagree": "compared between the ranks of the {side}, whatever the other side holds",
    "outside_tolerance": "outside the given tolerance",
    "within_tolerance": "within the given tolerance",
    "whole_numbers": "whole numbers differ",
    **EVIDENCE_OF_VALUES,
    "uncalled": "the reference has the output of {reference} there; the candidate has {candidate}, and never uses it",
    "uncalled_holder": "the reference calls {reference}; the candidate has {candidate}, and never calls it",
    "float64_differs": "settled by replaying both sides in float64, where rounding stays below {bound:.0e}",
    "float64_agrees": "the same in float64 (difference {wide:.1e}), natively {local:.1e} (noise floor {floor:.1e})",
    "digits_lost": "the same in float64 (difference {wide:.1e}), but in its own type the candidate's code loses digits "
    "that the reference's keeps (rounding there {floor:.1e}): an overflow, a huge number added, large ones subtracted?",
    "float32": "replayed in float32, as there is no float64 here: difference {wide:.1e} (noise floor {floor:.1e})",
    "like": "within {factor:g} times the noise floor of {call!r}, which does the same ({floor:.1e})",
    "narrow_cast": (
        "the {side} computes in a fixed narrower type, in a float64 model too, and what it rounds there ({noise:.1e}) "
        "explains the difference"
    ),
    "narrow_gradient": "the candidate's module by itself is as far from its own float64: a narrower type inside",
    "one_side_in_float64": _one_side,
    "native": lambda data: (
        f"not settled in float64: {_refused(data)}; replayed as they are, both sides differ by {data['wide']:.1e}"
    ),
    "machine_epsilon": lambda data: f"not settled in float64: {_refused(data)}; judged by machine epsilon alone",
    "drowned": "the same elements are masked, by {reference:.3g} in the reference and {candidate:.3g} in the candidate",
    "evaluation_mode": "judged in evaluation mode, where neither side samples random numbers",
    "stochastic": "the reference disagrees with itself under another seed; what follows was fed its recorded value",
    "distribution": "both sides sample random numbers there, of other distributions: a permutation test over {seeds} "
    "seeds or more of each side, made twice, errs less than once in 80,000 times",
    "randomness": "the {side} gives something else under every seed, the {other} always the same",
    "without_dropout": "without it the {side} is what the {other} is",
    "right_when_given": "{call} is right when it is given the reference's {name!r}",
    "model_changes_gradient": "the model's own code changes the gradient of its input (a hook on it?)",
    "input_unread": NOTES["input_unread"],
    "gradient_to_one": "a gradient reaches the input in the {side} only: the other model's code detaches it",
    "gradient_cut_to": "the {side} lets no gradient of {taker} through to what it is given (detached there?)",
    "gradient_cut": "the {side} lets no gradient through to it (detached, or made without gradients), the {other} does",
    "gradient_changed": (
        "right when the module is replayed, a difference of {rel_l2:.1e} in the model: something changes the gradient "
        "on its way (a hook on the parameter or on the module's output)"
    ),
    "weight_rewritten": "a forward changes this weight itself; both started from the same values",
    "buffer_of_other_size": "after the run the reference's holds {reference} numbers, the candidate's {candidate}",
    "buffer_in_model_only": "right when the module is replayed, not in the whole model: is it called more than once?",
    "loss_gradient": "the gradient that the loss sends to the output differs",
    "not_replayed": "placed at the model's innermost code that takes the tensor: a recorded run replays no call",
    "whole_model_only": "every call that takes the tensor gets it right when replayed; seen in the whole model only",
    "not_given": (
        "{names:few} has no counterpart among what the reference's call is given: what makes it may be what differs"
    ),
    "given_alone": "the {side}'s call is given {names:few}, the {other}'s nothing like that",
    "before_any_run": "the values differ before any run",
    "unshown": (
        "{count} of its {size} elements count with inputs of these shapes, and what these make is right; larger inputs "
        "may show the rest"
    ),
    "on_other_inputs": "inputs like these do not show it; others that were tried, and reach more of the weights, do",
    "no_counterpart": "the {side} has {path} {shape:list}, the {other} has no counterpart",
    "part_alone": lambda data: (
        f"of {data['path']} {list(data['whole'])} in the {data['side']} a part {list(data['shape'])} has no "
        f"counterpart: {data['other'] or 'the model'} in the {OTHER[data['side']]} has no {data['role']}"
    ),
    "numbers": "{reference} in the reference, {candidate} in the candidate; made of the reference's own values there",
    "another_layer": "the candidate calls {called} there, and not {due:or}, whose parameters are the reference's",
    "namesake": lambda data: (
        f"{data['path']} there holds {', '.join(f'{role} {list(shape)}' for role, shape in data['roles'].items())} "
        f"(in padiff's layout), which does not fit {list(data['shape'])}"
    ),
    "other_shape": _other_shape,
    "beside_other_shape": lambda data: (
        f"{' and '.join(dict.fromkeys(data['paths'].values()))} {list(data['shapes']['reference'])} would fit, "
        "and another parameter of the module does not"
    ),
    "tied": lambda data: (
        f"one parameter in the {data['side']}, {data['count']} in the {OTHER[data['side']]} "
        f"({few(data['paths'])}): "
        + ("their values differ" if data["apart"] else "equal now, different after the first update")
    ),
    "update": (
        "from equal weights and gradients: the reference's step is {step_rel_l2:.1e} of the weights, "
        "the candidate lands {rel_l2:.1e} away"
    ),
    "unverified_cut": "no gradient goes through {called} in the {side} only (not verified as the cause)",
    "unverified_settings": lambda data: f"settings differ: {settings(data)} (not verified as the cause)",
    "called_with": "the call is {reference} in the reference, {candidate} in the candidate",
    "unverified_arguments": "called as {reference} in the reference, as {candidate} in the candidate (not verified)",
    "hooks": lambda data: "hooks of a script's own at {}: {} in the reference, {} in the candidate".format(
        data["module"] or "the model", *(", ".join(data[side]) or "none" for side in ("reference", "candidate"))
    ),
    "frozen_together": "{paths:few}",
    "batch_of": lambda data: (
        f"the reference was given the same in step {data['step']}"
        + ("" if data["call"] is None else f", micro-batch {data['call'] + 1}")
        + ": batches come in another order"
    ),
    "other_inputs": "what was given to the candidate is not what was given to the reference",
    "other_input_shapes": "the reference was given {reference:all}, the candidate {candidate:all}",
    "recomputed": "in the {side} gradients are {rel_l2:.1e} away from its own without recomputation, under one seed",
    "losses": "{reference:.9g} in the reference, {candidate:.9g} in the candidate, from the same output",
    "extra_call": "only the {side}'s script makes this call: what it gives is compared with nothing",
    "missing_output": lambda data: (
        f"the {data['side']} returns {few(data['tensors'])}, "
        f"the {OTHER[data['side']]} nothing like {'it' if len(data['tensors']) == 1 else 'them'}: "
        f"it returns {few(data['others'])}"
    ),
    "other_output": "the reference returns {reference:all}, the candidate {candidate:all}",
    "other_input": "the reference's call is given {reference:all}, the candidate's {candidate:all}",
    "leap": (
        "what its code took differs by {known:.1e}, what it gave by {made:.1e}: the difference arises here; as nothing "
        "was run again, it is not settled in float64"
    ),
    "made_scaled": "it is {times:.3f} times the reference's in all elements alike, where rounding goes either way",
    "added_scaled": (
        "what it adds to what its code took is {times:.3f} times the reference's in all elements alike, where rounding "
        "goes either way"
    ),
    "grown": (
        "what its code took differs by {known:.1e}, no more than rounding explains, what it gave by {made:.1e}, which "
        "is more: the difference arises here; as nothing was run again, it is not settled in float64"
    ),
    "setting_shows": (
        "what its code took differs by {known:.1e}, what it gave by {made:.1e}, and its hyper-parameters differ"
    ),
    "consequence": "what its code took differs by {known:.1e} already: this may be a consequence",
    "moved_weights": "weights are {known:.1e} apart behind the step: what a script makes by them may be a consequence",
    "recorded_draws": (
        "random numbers are drawn, which the recorded run cannot draw again: record and compare in evaluation mode"
    ),
    "drawn_here": "random numbers are drawn here, by each run its own",
    "gradients_cancelled": "the gradients that it is the sum of cancel: what is left of them is rounding",
    "signs_turned": "it has the other side's norm, or sums up what has: a coarse type turns signs at each kink",
    "other_norm": "signs that a coarse type turns keep a norm, which is {times:.2f} times the reference's here",
    "at_a_kink": "what it was computed from lies at a kink but for rounding, in few elements",
    "rounding_magnified": "it follows from gradients that are rounding alone",
    "drawn_before": "it follows from random numbers that each run drew for itself",
    "sent_otherwise": (
        "what the model gives agrees, and what the loss sends back to it is {rel_l2:.2g} apart: other targets, "
        "weights, terms, or another reduction"
    ),
    "sent_alike": (
        "over {rows} rows it is {times:.4g} times the reference's, as a rule, where rounding goes either way: "
        "another loss (targets that are smoothed, a factor)"
    ),
    "sent_by_row": (
        "of {rows} rows each has a factor of its own, {least:.3g} to {most:.3g}, by more than what the outputs are "
        "apart explains: another loss (weights of classes or rows, a mask)"
    ),
    "losses_of_runs": "{reference:.9g} in the reference, {candidate:.9g} in the candidate",
    **EVIDENCE_OF_STEPS,
    "not_compared": "{why}",
    "rounds": lambda data: (
        f"{data['called']}: "
        + ("each of" if len(data["which"]) == data["of"] else f"in no. {few(list(map(str, data['which'])))} of")
        + f" the {data['of']} times that the candidate's line runs"
    ),
    "more_differs": "with that put right the value differs still: something else is wrong in that code, too",
    "between_lines": "it arises in {reference:span} of the reference, in {candidate:span} of the candidate",
    "free_run": "right when fed from the reference; figures from a sample of elements",
}
