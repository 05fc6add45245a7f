"""Know the calls that one side's script alone makes of a module which both call: nothing is compared with them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from padiff.alignment import Alignment
from padiff.judging._findings import as_one, place_of
from padiff.judging._sizes import held, magnitude
from padiff.report import SIDES, Cause, Evidence, Finding, Note, Phase, Place, Verdict, What
from padiff.trace import Call, Description, Summary, Trace


def extra_calls(alignment: Alignment) -> Iterator[tuple[str, Call]]:
    """Yield the side, and the call, of which no part was matched, though modules inside are where they are called else.

    A call whose parts were matched the other side's script puts together itself.
    """
    for side, left in zip(SIDES, (alignment.left_reference, alignment.left_candidate), strict=True):
        matched = [getattr(pair, side) for pair in alignment.pairs]
        keys, paths = {call.key for call in matched}, {call.path for call in matched}
        for call in left:
            inside = [one for one in call.subtree() if not one.module.operation]
            apart = call.parent is None and not any(one.key in keys for one in inside)
            if apart and any(one.path in paths for one in inside):
                yield side, call


def is_trained(call: Call, trace: Trace) -> bool:
    """Return whether a gradient comes to what a call, or one inside of it, gives."""
    keys = (trace.gradients.get(leaf.token) for inner in call.subtree() for leaf in inner.outputs)
    found = [held(trace, key) for key in keys if key is not None]
    unknown = (one is None or (isinstance(one, Summary) and one.norm is None) for one in found)
    return any(unknown) or any(map(magnitude, found))


def of_extra_calls(
    alignment: Alignment, traces: tuple[Trace, Trace], step: int, *, backward: bool
) -> tuple[list[Finding], list[Note]]:
    """Return what is told of them: a note where gradients were compared, and none comes to what such a call gives.

    Else nothing tells that it has no effect: what gets gradients is a source, and values alone are never a pass.
    """
    found, noted = [], []
    for side, call in extra_calls(alignment):
        ours, theirs = (place_of(call) if one == side else Place(None) for one in SIDES)
        trained = backward and is_trained(call, traces[SIDES.index(side)])
        if backward and not trained:
            noted.append(Note("extra_call", {"side": side}, **{side: place_of(call)}))
            continue
        phase, evidence = (Phase.FORWARD, Phase.BACKWARD)[trained], (Evidence.of("extra_call", side=side),)
        rest: dict[str, Any] = {"evidence": evidence, "source": trained, "side": side, "step": step}
        found.append(Finding(Verdict.UNMATCHED, phase, ours, theirs, What("output"), **rest))
    return found, noted


def of_called_again(
    found: Sequence[Finding], alignment: Alignment, traces: tuple[Trace, Trace], models: tuple[Description, Description]
) -> list[Finding]:
    """Return findings of which those on buffers that a call of one side alone updates in training mode are one source.

    An evaluation that leaves the model in that mode, say: its statistics are of other data.
    """
    again = extra_calls(alignment)
    inside = {(side, one.path): call for side, call in again for one in call.subtree() if one.training}
    homes = [
        next((inside[key] for side in SIDES if (key := (side, getattr(one, side).path or "")) in inside), None)
        for one in found
    ]
    moved = [
        (one, home)
        for one, home in zip(found, homes, strict=True)
        if home is not None and one.source and one.phase is Phase.BUFFER and one.cause is None
    ]
    if not moved:
        return list(found)
    (first, call), group = moved[0], [one for one, _ in moved]
    counts = {side: len(trace.by_module().get(call.path, ())) for side, trace in zip(SIDES, traces, strict=True)}
    whole = as_one(group, models, "buffers", "buffers", cause=Cause("calls", {"name": call.path, **counts}))
    return [whole if one is first else one for one in found if one is first or not any(one is other for other in group)]


def beside(known: Sequence[Note], notes: Sequence[Note]) -> list[Note]:
    """Return notes on modules of which nothing like it was noted."""
    told = {_about(note) for note in known}
    return list({_about(note): note for note in reversed(notes) if _about(note) not in told}.values())


def _about(note: Note) -> tuple[object, ...]:
    return (note.kind, *(place and place.path for place in (note.reference, note.candidate)))
