"""Say which adapter knows which framework, and what it may offer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs
import pluggy

hookimpl = pluggy.HookimplMarker("padiff")
"""Marks a function of a plugin as one of padiff's hooks."""
API_VERSION = 1
"""The version of this interface; an adapter states the one that it was written for."""

CAPABILITIES: Mapping[str, str] = {
    "gradients": "the backward pass: gradients of parameters and of every tensor, seen and replaced",
    "float64": "a model held in float64 for a while, and put back",
    "in-place": "tensors that change in place: snapshots, versions, memory to write to",
    "buffers": "state that a run changes and no gradient reaches, such as running statistics",
    "modes": "training and evaluation",
    "randomness": "modules that draw random numbers: seeded, and the generators put back",
    "freezing": "parameters taken out of training",
    "optimizers": "steps of the framework's own optimizers",
    "recomputation": "calls that the framework repeats in the backward pass, reported once",
    "compilation": "compiled models, on which hooks would be ignored, refused",
    "devices": "tensors and models on accelerators",
    "operations": "functions, operators and tensor methods that a model's own code calls, reported one by one",
}
"""What an adapter may offer beyond the rest of the interface; `Adapter.capabilities` says which it does."""


def offered_not(what: str, capability: str) -> str:
    """Return the message of an adapter that is asked for a capability that it does not offer."""
    msg = f"{what}, and its adapter does not offer {capability!r} (see Adapter.capabilities)."
    return f"{msg}\nHint: padiff.diff does without it; an adapter's author overrides this method."


def _names(values: Iterable[str]) -> frozenset[str]:
    return frozenset(values)


@attrs.frozen
class AdapterInfo:
    """What is known of an adapter before its framework is imported.

    ``roots`` are the packages whose classes it understands, top-level ones as a rule; ``factory`` is
    ``"package.module:callable"``, imported on first use; ``load_before`` names frameworks that must not be
    imported earlier than this one; ``environment`` are variables that padiff sets in processes of its own (the command
    line's, the workers of remote models) where the user has not. ``api`` is the version of this interface
    (`API_VERSION` then) that the adapter was written for, as a plain number, the first where it is left out: another
    one is refused.
    """

    name: str
    roots: frozenset[str] = attrs.field(converter=_names)
    factory: str
    load_before: frozenset[str] = attrs.field(default=frozenset(), converter=_names)
    environment: Mapping[str, str] = attrs.field(factory=dict, hash=False)
    api: int = 1
    kinds: str = ""
