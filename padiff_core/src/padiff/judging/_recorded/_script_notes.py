"""Say what two recorded scripts did otherwise around equal models: modes, a loss, automatic casts, settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from padiff.alignment import Alignment
from padiff.judging._optimizer_notes import unlike_settings
from padiff.judging._optimizer_step import numbers_of
from padiff.judging._recorded._computed_in import Types, types_of
from padiff.judging._recorded._levels import cast_of
from padiff.judging._recorded._meter import Meter
from padiff.numerics import SAME, epsilon_of
from padiff.parameters import Correspondence, Link
from padiff.report import SIDES, Finding, Note
from padiff.trace import Key, Trace


def unlike_scripts(traces: tuple[Trace, Trace]) -> Iterator[Note]:
    """Yield what the scripts did otherwise around the models."""
    modes = [("training" if trace.root.training else "evaluation") for trace in traces]
    if modes[0] != modes[1]:
        yield Note("modes_differ", dict(zip(SIDES, modes, strict=True)))
    given = [name for name, trace in zip(SIDES, traces, strict=True) if trace.loss is not None]
    if len(given) == 1:
        yield Note("loss_of_one_side", {"side": given[0]})


def unlike_casts(alignment: Alignment, computing: Mapping[Key, Types]) -> Iterator[Note]:
    """Yield the modules that one side alone computes in a coarser type."""
    made = ((pair, types_of(*both, pair, computing)) for pair in alignment.pairs for both in pair.made)
    cast = [(pair, both) for pair, both in made if cast_of(*both)]
    if cast:
        types = dict(zip(SIDES, max((both for _, both in cast), key=lambda one: cast_of(*one)), strict=True))
        paths = dict.fromkeys(pair.candidate.path for pair, _ in cast)
        coarser = max(types.values(), key=epsilon_of)
        eps = epsilon_of(coarser)
        hidden = {"value": float(f"{SAME(eps):.2g}"), "loss": float(f"{eps:.2g}")}
        yield Note("unlike_casts", {**types, "modules": list(paths), "coarser": coarser, "hidden": hidden})


def unlike_buffers(meter: Meter, known: Correspondence) -> Iterator[Note]:
    """Yield the buffers of one path that are matched with nothing, and hold something else: no call may show it."""
    linked = {link.candidate.parameter.path for _, link in known.links}
    ours, theirs = meter.kept("buffer")
    sizes = ((path, meter.size(ours[path][1], theirs[path][1])) for path in theirs if path in ours)
    apart = [path for path, size in sizes if path not in linked and size is not None and size.error > SAME(size.eps)]
    if apart:
        yield Note("buffers_differ", {"paths": apart})


def unlike_numbers(meter: Meter, link: Link) -> dict[str, Any]:
    """Return the numbers that differ among what both sides' optimizers step a parameter with, by name."""
    return unlike_settings(meter.settings(link), numbers_of)


def without_settings_seen(notes: Sequence[Note], found: Sequence[Finding]) -> list[Note]:
    """Return the notes without those on settings, where a finding shows what such ones make of the weights."""
    found = [one for one in found if one.source]
    seen = any(one.is_caused_by("optimizer_settings") or one.rests_on("settings_of_ranks") for one in found)
    return [note for note in notes if not (seen and note.kind == "optimizer_setting")]
