"""Say in words what notes hold as data: one table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from padiff.report._phrases_of_readings import READINGS
from padiff.report._templates import Data, Phrase, few


def _not_fed(data: Data) -> str:
    said = "given a value of another shape than in the reference, and judged only with the code around: "
    after = "; fix the sources and compare again" if data["sources"] else ""
    return said + few([repr(path) for path in data["calls"]]) + after


def _nonfinite(data: Data) -> str:
    when = "before the transfer, " if data["transfer"] else ""
    held = f"{when}parameters of the candidate {'held' if when else 'hold'}"
    return f"{held} NaN or Inf: {few(data['parameters'])}; see how its weights are loaded"


def _axis_order(data: Data) -> str:
    """Name each order as both sides have it: [j, i, k] here is what [i, j, k] is there."""
    told = []
    for order in data["orders"]:
        letters = "ijklmnopq"[: len(order["axes"])]
        theirs = [letters[order["axes"].index(axis)] for axis in range(len(letters))]
        at = few([repr(module) if module else "the model itself" for module in order["modules"]])
        told.append(f"[{', '.join(theirs)}] for [{', '.join(letters)}] at {at}")
    images = "images have their channels last on one side and first on the other" if data["images"] else ""
    other = "the candidate has axes in another order than the reference"
    return f"{images or other}, and is read in the reference's: {'; '.join(told)}"


def _record_next(data: Data) -> str:
    told = "record what is suspect in full, with values='tensors' and "
    if data["reference"] == data["candidate"]:
        return f"{told}modules={list(data['candidate'])!r}"
    return f"{told}modules={list(data['reference'])!r} (reference), {list(data['candidate'])!r} (candidate)"


def _zeros(data: Data) -> str:
    if data.get("unreached"):
        return f"weights that no gradient reaches on these inputs ({few(data['paths'])})"
    which = "zeros or ones hide what is made of them" if data.get("ones") else "zeros hide what is multiplied with them"
    return f"weights that are {which} ({few(data['paths'])})"


def _misnamed(how: str, matches: Sequence[Sequence[str]]) -> str:
    told = few([f"{ours} with {theirs}, not with {named}" for ours, theirs, named in matches])
    return f"matched by what they do, {how}: {told}; whoever loads weights by these names puts them in the wrong places"


NOTES: Mapping[str, Phrase] = {
    **READINGS,
    "unused_gradients": (
        "gradients of {module} arrive in the {side} alone, where no optimizer of either steps with them: not compared"
    ),
    "record_next": _record_next,
    "ranks": lambda data: (
        f"the {data['side']} is merged from {data['count']} ranks"
        + (f"; how {data['inferred']} values are spread is inferred from the values" if data["inferred"] else "")
        + (f"; {data['left']} could not be put together, and are not compared" if data["left"] else "")
    ),
    "ranks_missing": lambda data: (
        f"of the {data['side']}'s {data['world']} ranks some are missing, and with them their shards: "
        + few([f"rank {rank} ({why})" for rank, why in data["missing"]])
    ),
    "padded_rows": (
        "the {side}'s vocabulary has {count} rows, the other's {real}, and no token names one beyond these: taken for "
        "padding, they and what is computed for them are not compared"
    ),
    "modules_of_some_ranks": (
        "{count} modules of the {side}, {first} and others, lie on some ranks alone (experts, say), and are put "
        "together from these"
    ),
    "ranks_steps": lambda data: (
        f"the {data['side']}'s ranks finished other steps each; those that all finished are compared: "
        + few([f"rank {rank} {steps}" for rank, steps in data["ranks"]])
    ),
    "rewritten_weights": "the {side}'s forward changes weights of its own, put back after every run: {paths:quoted}",
    "against_names": lambda data: _misnamed("against names that agree", data["matches"]),
    "against_other_blocks": lambda data: _misnamed("otherwise than in other blocks", data["matches"]),
    "crossed_names": lambda data: (
        f"the code of {repr(data['module']) if data['module'] else 'the model'} gives what the reference's gives with "
        + " and ".join(f"{theirs} for the reference's {ours}" for ours, theirs in data["matches"])
        + ", against names that agree: it uses them for each other; where the names are crossed instead, "
        f"mapping={dict(data['matches'])!r} says so"
    ),
    "frozen_on_one_side": (
        "frozen parameters that only the {side} has: {paths:quoted}; what the other side computes in their place is "
        "compared where it is used"
    ),
    "unregistered": lambda data: (
        f"the {data['side']} holds modules in plain lists, where its framework does not see them: "
        + few([f"{path!r} ({', '.join(dict.fromkeys(kinds))})" for path, kinds in data["held"].items()])
        + "; their parameters are neither copied nor compared, and no optimizer gets them: use the framework's own "
        "list of modules"
    ),
    "kept_state": "the {side}'s forward keeps state in attributes, put back before every run: {paths:quoted}",
    "rebuilt": (
        "the {side} keeps in evaluation mode what it made of its weights; it made that anew with those it was given, "
        "by going into training mode and back: {paths:quoted}"
    ),
    "recorded_reference": lambda data: (
        f"the reference is the recorded run {data['run']} "
        f"(step{'s' if len(data['steps']) > 1 else ''} {', '.join(map(str, data['steps']))}), which fed the candidate: "
        "what runs in float64 and replays tell, the candidate's alone told"
    ),
    "same_object": (
        "the reference and the candidate are the same object, which agrees with itself whatever it computes: build the "
        "candidate separately"
    ),
    "same_run": "the reference and the candidate are the same recorded run, {run}, which agrees with itself",
    "shared_parameters": (
        "the two models share parameters, so that a transfer or a step of one changes the other: {paths:quoted}"
    ),
    "parameter_dtypes": (
        "the reference's parameters are {reference:and}, the candidate's {candidate:and}: what only the dtypes make "
        "differ is reported too; bring both models to one dtype to compare their code alone"
    ),
    "unlike_casts": (
        "{modules:count} modules give {reference} in the reference and {candidate} in the candidate "
        "({modules:quoted}): from there on, what differs by less than the coarser one rounds does not show (a value "
        "that is up to {hidden[value]:g} apart, relative L2, a loss that sends up to {hidden[loss]:g} more in the "
        "mean); record both with the same casts to see it"
    ),
    "buffers_differ": (
        "buffers of one name are matched with nothing and hold other values, or as many others, which nothing that was "
        "compared shows: {paths:quoted}"
    ),
    "nonfinite_parameters": _nonfinite,
    "merged": lambda data: (
        "merged: "
        + (f"{few(data['candidate'])} of the candidate " if data["candidate"] else "the candidate without them ")
        + (f"and {few(data['reference'])} of the reference " if data["reference"] else "")
        + "have no equal each, and compute the same together, on other inputs too"
    ),
    "as_given": (
        "the candidate holds other parameters than the reference, and gives what that gives: it was compared with what "
        "it holds, as with transfer=False, and nothing was copied to it"
    ),
    "forward_only": "compared forward only: {why}",
    "steps_of_one_side": lambda data: (
        f"not compared: the {data['side']} alone recorded {'step' if len(data['steps']) == 1 else 'steps'} "
        f"{few([str(one) for one in data['steps']])}"
    ),
    "loss_of_one_side": (
        "the loss was not compared: step() of the {side}'s recorder alone was given one, recorder.step(loss)"
    ),
    "modes_differ": "the reference ran in {reference} mode, the candidate in {candidate} mode",
    "inert_inputs": (
        "no gradient was asked of input {paths:few}: a function takes it only without one, or sends it none (weights, "
        "or targets, of a loss)"
    ),
    "inputs_cast": "float64 inputs were cast to the dtype of the reference's parameters",
    "mapping_rule_unused": "a rule of the mapping file did nothing: {place} ({rule}): {why}",
    "mapping_inverted": (
        "the mapping file {file} has the candidate's names on the left and the reference's on the right: it was read "
        "that way"
    ),
    "axis_order": _axis_order,
    "idle_optimizers": (
        "neither optimizer moved a parameter in any step, so that nothing of them was compared: a learning rate of 0, "
        "with which a warm-up begins, or a function that takes no step"
    ),
    "begun_anew": (
        "a step leaves {paths:few} in another shape than it found, and the next one begins with what both models held "
        "before: no buffer can be given another shape from outside"
    ),
    "carried": (
        "sums that calls hand on to the next, and the reference adds up around them, are used by nothing that is "
        "compared: {modules:quoted}; return them, or what is made of them, to see whether they agree"
    ),
    "reordered": (
        "the candidate holds the reference's rows or columns in another order, and its code takes them so: "
        "{parameters:few}"
    ),
    "row_order": (
        "the candidate has rows (tokens, or samples) in another order than the reference, and is read in the "
        "reference's: at {modules:quoted}"
    ),
    "axis_order_operations": "operations are not compared: they name axes, which differ here",
    "other_bytes": (
        "{class} {module!r} is the first that makes other bytes of equal ones: by rounding alone, by other weights, or "
        "wrongly, which checksums do not tell"
    ),
    "loss_rounded": (
        "the losses are {apart:.2g} apart from the same output, which is rounding: an epsilon in what they are "
        "computed with moves them by up to {most:.2g}, since they subtract what is nearly the same"
    ),
    "masks": "both sides mask the same elements, by other numbers: what they drown is compared by its effect alone",
    "gradients_cancelled": (
        "the gradients of the loss cancel to rounding in {modules:few}: what is behind in the backward pass is not "
        "compared; choose another loss, not a mean over what a normalisation gives"
    ),
    "loss_scaled_and_clipped": (
        "the {side}'s backward pass starts from {times:g} times the other's gradients, and both clip: they are "
        "compared divided by that; whether it is taken back before they are clipped shows in no recorded step, record "
        "one in which neither clips to see it"
    ),
    "loss_scaled": (
        "the {side} scales its loss by {times:g}, and gradients back before the step: its gradients are compared "
        "divided by that"
    ),
    "at_a_kink": (
        "rounding takes few elements to the other side of a kink in {modules:few}: gradients behind are compared by "
        "leaps alone"
    ),
    "signs_turned": (
        "gradients in {modules:few} are further apart than what rounding accumulates to, and of one norm, or they sum "
        "up such: a coarse type turns signs at each kink (a ReLU); a fault that keeps the norm does not show there"
    ),
    "flow_refused": (
        "the {side} does not run under the hooks that follow its values ({error}): parameters were matched by its calls"
    ),
    "dtype_policy": (
        "a dtype policy differs: the {side} computes in {dtype} what the {other} computes in {wider} ({operations:few})"
    ),
    "tf32": (
        "the {side} ({device}) computes float32 products in TF32 ({what}), of whose factors it reads ten bits: that "
        "explains what has another precision; switched off, the comparison is sharper and far faster"
    ),
    "metric_failed": "{said}",
    "running_variance": (
        "running variances are tracked with n/(n-1) by one framework and without by the other "
        "({reference}, {candidate}): taken as a convention"
    ),
    "numbers_vary": (
        "the number that the reference returns at {name} is another one in each run (a time, or chance): it is not "
        "compared"
    ),
    "numbers_alone": "the {side} alone returns numbers at {names:few}: they are compared with nothing",
    "recomputed_otherwise": (
        "what both sides compute again in their backward passes is not what they computed forward (random numbers "
        "drawn anew?): with recomputation their gradients were not compared; let both preserve the random state"
    ),
    "cache_alone": (
        "the {side} alone returns a cache, as for generating ({tensors:few}): it is compared with nothing; give both "
        "use_cache=True, or what they call it, to compare theirs"
    ),
    "input_unread": (
        "the {side} does not read input {reference:input}, whose values are all the same: with others in half of it "
        "the outputs of the {other} change, and its own do not; compare with values that matter, a mask that hides "
        "something"
    ),
    "input_hides": (
        "the values of input {reference:input} are all the same, which hides a difference: with others in half of it "
        "the outputs are {apart:.2g} apart; compare with values that matter, a mask that hides something"
    ),
    "zeros_replaced": lambda data: (
        f"{_zeros(data)}: "
        + (
            "with other values there, on both sides, the two differ, as told here; as they are nothing shows"
            if data["differs"]
            else "compared with other values there, too, on both sides"
        )
    ),
    "unreached": lambda data: (
        f"{_zeros({**data, 'unreached': True})}, with other values there neither: the outputs are the same whatever is "
        "computed with them, which is not compared; give inputs under which they matter"
    ),
    "zeros_hide": lambda data: (
        f"{_zeros(data)}: whether that is right the recorded values do not tell; record a later step, or compare the "
        "models with padiff.diff"
    ),
    "zeros_kept": lambda data: (
        f"{_zeros(data)}, and with other values the models do not run ({data['error']}): what these "
        "hide is not compared"
    ),
    "hidden_positions": (
        "in {modules:few} values differ at positions that no gradient comes to on either side, as behind a mask: these "
        "are not compared, since no recorded gradient depends on them"
    ),
    "harmless": (
        "{value} differs by {rel_l2:.2g}, and of all that the models give nothing does, in values and gradients: "
        "the same is computed in another way"
    ),
    "harmless_hidden": (
        "{value} differs by {rel_l2:.2g}, also at positions that nothing reads, and of all that the models give "
        "nothing does, in values and gradients; with inputs that hide no position the two are aligned as well"
    ),
    "differs_where": (
        "what the models give differs where input {input:input} is {value}, and nowhere else: if nothing reads that, "
        "compare models that give what is read"
    ),
    "hidden_alone": (
        "{value} differs by {rel_l2:.2g} at positions that nothing reads; with inputs that hide no position it does not"
    ),
    "moved_output": "output {reference} of the reference is compared with output {candidate} of the candidate",
    "not_fed": _not_fed,
    "optimizer_setting": (
        "the optimizer's {name}: {reference:setting} in the reference, {candidate:setting} in the candidate; the "
        "weights do not show it by themselves"
    ),
    "setting_unseen": (
        "{name}: {reference} in the reference, {candidate} in the candidate; what it makes of it was not recorded"
    ),
    "setting": "{name}: {reference} in the reference, {candidate} in the candidate; no effect here",
    "setting_unfit": (
        "{name}: {reference} in the reference, {candidate} in the candidate; what it makes of another shape was not "
        "compared"
    ),
    "setting_hidden": (
        "{name}: {reference} in the reference, {candidate} in the candidate; no effect shows beside what one side's "
        "casts round"
    ),
    "untrained_output": "the {side} alone returns {tensors:few}, to which no gradient comes: compared with nothing",
    "extra_call": "only the {side}'s script makes this call, to which no gradient comes: compared with nothing",
    "one_side_call": "only the {side} calls it; judged with the code around it",
    "idle_part": (
        "a part {shape:list} of {path} {whole:list} is in the {side} only: {other:holder} has no {role}, and nothing "
        "shows that it changes anything"
    ),
    "idle_parameter": "parameter {name} {shape:list} is in the {side} only, and reaches no output",
    "transfer_writes": "its parameters are not compared: the special transfer {transfer} writes to the module itself",
    "transfer_without_gradients": lambda data: (
        f"gradients of {few(data['names'])} are not compared: the special transfer {data['transfer']} "
        f"{'writes to the module itself' if data['writes'] else 'does more than rearrange'}, and names no gradients"
    ),
}
