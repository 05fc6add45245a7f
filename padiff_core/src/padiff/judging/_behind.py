"""Tell the calls of a recorded step that are made behind the optimizer's step, or computed again for the gradients."""

from __future__ import annotations

from padiff.alignment import Pair
from padiff.report import SIDES
from padiff.trace import Call, Trace


def is_behind(pair: Pair, traces: tuple[Trace, Trace]) -> bool:
    """Return whether a call is made behind the step of both sides' optimizers, as far as that is known.

    Where no run says when its optimizer stepped, an evaluation behind training is.
    """
    calls = pair.reference, pair.candidate
    told = _told(pair, traces)
    if told:
        return all(told)
    return all(_is_evaluation(call, trace) for call, trace in zip(calls, traces, strict=True))


def behind_on(pair: Pair, traces: tuple[Trace, Trace]) -> str | None:
    """Return the side on which alone a call is made behind the optimizer's step; None where no such is known."""
    told = _told(pair, traces)
    return SIDES[told.index(True)] if set(told) == {False, True} else None


def is_computed_again(call: Call, trace: Trace) -> bool:
    """Return whether a call was made without gradients, in a module whose parameters got theirs all the same.

    That is recomputation: what gets the gradients inside is not what was seen. Where it is none, parameters tell.
    """
    for above in (call, *call.ancestors()):
        given = [leaf for leaf in above.outputs if "float" in leaf.dtype]
        blind = above.path and given and not any(leaf.differentiable for leaf in given)
        if blind and any(path.startswith(f"{above.path}.") for path in trace.parameter_gradients):
            return True
    return False


def _told(pair: Pair, traces: tuple[Trace, Trace]) -> list[bool]:
    """Return, of each side that says when its optimizer stepped, whether a call was made behind that."""
    held = zip((pair.reference, pair.candidate), traces, strict=True)
    return [call.index >= trace.stepped_at for call, trace in held if trace.stepped_at is not None]


def _is_evaluation(call: Call, trace: Trace) -> bool:
    top = next((above for above in call.ancestors() if above.parent is None), call)
    return trace.root.training and not top.training
