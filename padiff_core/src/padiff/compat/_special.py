"""Register functions that initialise one layer from another, as PaDiff has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from padiff.errors import InputError
from padiff.plugins import SpecialTransfer, adapters, register_transfer

_NEWER = ("base_framework", "base_model_name", "raw_framework", "raw_model_name", "func")
_OLDER = ("paddle_name", "torch_name", "func")


def add_special_init(*given: Any, **keywords: Any) -> None:
    """Let a function copy the weights between layers of two classes, from now on.

    ``add_special_init(base_framework, base_model_name, raw_framework, raw_model_name, func)``: ``func(base_model,
    raw_model)`` gets both layers, where the base model's is of the one class and the raw model's of the other, and
    writes the raw one's weights. ``add_special_init(paddle_name, torch_name, func)``, as in PaDiff 0.2:
    ``func(paddle_layer, torch_module)`` writes the Paddle layer's from torch's. Class names are given with or without
    their module. The function serves wherever two such layers belong together, in a layer map or not, for `auto_diff`,
    `assign_weight` and `padiff.diff`; one for the same classes takes the place of the former.

    Raises ``TypeError`` for other arguments, `InputError` for a framework that no adapter knows.
    """
    older = len(given) + len(keywords) == len(_OLDER)
    names = _OLDER if older else _NEWER
    values = dict(zip(names, given, strict=False)) | keywords
    if set(values) != set(names) or len(given) + len(keywords) != len(names) or not callable(values["func"]):
        msg = (
            f"add_special_init() got {len(given)} arguments by position and {', '.join(keywords) or 'none'} by name.\n"
            f"Hint: add_special_init({', '.join(_NEWER)}), func a function of both layers."
        )
        raise TypeError(msg)
    function = values["func"]
    if older:  # it takes the layers in the other order
        base, raw = ("torch", values["torch_name"]), ("paddle", values["paddle_name"])
        _register(base, raw, lambda base, raw: function(raw, base))
        return
    base, raw = ((values[f"{end}_framework"], values[f"{end}_model_name"]) for end in ("base", "raw"))
    _register(base, raw, function)


def _register(base: tuple[str, str], raw: tuple[str, str], function: Callable[..., Any]) -> None:
    known = [info.name for info in adapters()]
    for framework, _ in (base, raw):
        if framework not in known:
            msg = f"add_special_init() got the framework {framework!r}.\nHint: one of {', '.join(map(repr, known))}."
            raise InputError(msg)
    register_transfer(
        SpecialTransfer(
            base[1],
            raw[1],
            function,
            frameworks=(base[0], raw[0]),
            takes="modules",
            name=f"{'::'.join(base)} -> {'::'.join(raw)}",
        )
    )
