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
    function: Callable[..., Any] = values["func"]
    if older:
        frameworks, classes = ("torch", "paddle"), (values["torch_name"], values["paddle_name"])
    else:
        frameworks = values["base_framework"], values["raw_framework"]
        classes = values["base_model_name"], values["raw_model_name"]
    known = [info.name for info in adapters()]
    for framework in frameworks:
        if framework not in known:
            msg = f"add_special_init() got the framework {framework!r}.\nHint: one of {', '.join(map(repr, known))}."
            raise InputError(msg)
    # The older form takes the layers in the other order.
    transfer = (lambda base, raw: function(raw, base)) if older else function
    name = " -> ".join(map("::".join, zip(frameworks, classes, strict=True)))
    register_transfer(SpecialTransfer(*classes, transfer, frameworks=frameworks, takes="modules", name=name))
