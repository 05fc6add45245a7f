"""Find which documented form a call has, by the keywords used, and name its arguments in one way.

    auto_diff(base_model, raw_model, inputs, loss_fns, optimizers, atol=, rtol=, auto_init=, ...)      document 001
    auto_diff(layer, module, example_inp, auto_weights, steps, options, layer_map, loss_fn, optimizer)  document 002
    auto_diff(layer, module, example_inp, auto_weights, layer_mapping, options)                         document 003

In the first the first model is right by definition; in the others the second is: what a Paddle layer was ported from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from padiff.alignment import LayerMap
from padiff.errors import did_you_mean

OPTIONS = ("atol", "rtol", "compare_mode", "diff_phase", "single_step")


class Form(Enum):
    """A documented form, by the names of its first two arguments."""

    BASE = ("base_model", "raw_model")
    """The weights go from the first model to the second."""
    LAYER = ("layer", "module")
    """They go from the second to the first."""


_BASE = {
    "base_model": "first",
    "raw_model": "second",
    "inputs": "inputs",
    "loss_fns": "losses",
    "optimizers": "optimizers",
    "auto_init": "transfer",
    "model_names": "names",
    **{name: name for name in OPTIONS},
}
_LAYER = {
    "layer": "first",
    "module": "second",
    "example_inp": "inputs",
    "options": "options",
    "layer_mapping": "mapping",
}
_EITHER = {
    "auto_weights": "transfer",
    "layer_map": "mapping",
    "loss_fn": "losses",
    "optimizer": "optimizers",
    "steps": "steps",
}
_MEANING = {**_BASE, **_LAYER, **_EITHER}

_NEEDED = ("first", "second", "inputs")
_PLACES_001 = ("base_model", "raw_model", "inputs", "loss_fns", "optimizers")
_MODELS = ("layer", "module", "example_inp", "auto_weights")
_PLACES_002 = (*_MODELS, "steps", "options", "layer_map", "loss_fn", "optimizer")
_PLACES_003 = (*_MODELS, "layer_mapping", "options")
_PLACES_0_1 = (*_MODELS, "options", "layer_mapping")


def call_of(given: Sequence[Any], keywords: Mapping[str, Any], *, swapped: bool) -> tuple[Form, dict[str, Any]]:
    """Return the form of a call, and its arguments under one name each, whatever they were called.

    ``swapped`` says that the first model is torch's and the second Paddle's, as no call of the older form has it: that
    decides where no keyword does. Raises ``TypeError`` for a keyword that no form has, for two that no form has
    together, and for an argument given twice.
    """
    for name in keywords:
        if name not in _MEANING:
            hint = did_you_mean(name, _MEANING, "{}=") or f"it takes {', '.join(_MEANING)}."
            msg = f"auto_diff() got an unexpected keyword argument {name!r}.\nHint: {hint}"
            raise TypeError(msg)
    ours, theirs = [name for name in keywords if name in _BASE], [name for name in keywords if name in _LAYER]
    older = len(given) > 3 and isinstance(given[3], bool)
    if ours and (theirs or older):
        other = f"{theirs[0]}=" if theirs else "a bool in the fourth place"
        msg = (
            f"auto_diff() got {ours[0]}= of the form (base_model, raw_model, inputs, ...) and {other} of the form "
            "(layer, module, example_inp, ...).\nHint: the two copy weights in opposite directions; keep to one."
        )
        raise TypeError(msg)
    weak = [name for name in keywords if name in _EITHER]
    form = Form.LAYER if theirs or older or (weak and not ours and not swapped and len(given) <= 3) else Form.BASE
    places = _PLACES_001 if form is Form.BASE else _older_places(given)
    named = _in_places(given, places)
    values: dict[str, Any] = {}
    for name, value in (*named, *keywords.items()):
        meaning = _MEANING[name]
        if meaning in values:
            msg = f"auto_diff() got {name} twice, or under two names.\nHint: give it once."
            raise TypeError(msg)
        values[meaning] = value
    wanted = dict(zip(_NEEDED, places, strict=False))
    missing = [name for meaning, name in wanted.items() if meaning not in values]
    if missing:
        msg = f"auto_diff() misses {', '.join(missing)}.\nHint: auto_diff({', '.join(wanted.values())})."
        raise TypeError(msg)
    return form, values


def _in_places(given: Sequence[Any], places: Sequence[str]) -> list[tuple[str, Any]]:
    """Name positional arguments."""
    if len(given) > len(places):
        msg = (
            f"auto_diff() takes at most {len(places)} arguments by position and got {len(given)}.\n"
            f"Hint: ({', '.join(places)}); name what comes behind the inputs."
        )
        raise TypeError(msg)
    return list(zip(places, given, strict=False))


def _older_places(given: Sequence[Any]) -> Sequence[str]:
    """Return which order of document 002, 003 or the package 0.1 the arguments behind the fourth fit."""
    fifth = given[4] if len(given) > 4 else 1
    if isinstance(fifth, int):
        return _PLACES_002
    is_options = not isinstance(fifth, LayerMap) and bool(fifth) and all(key in OPTIONS for key in fifth)
    return _PLACES_0_1 if is_options else _PLACES_003
