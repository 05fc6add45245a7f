"""List classes of bugs: what a piece of right source becomes."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

import attrs

from .patterns import called, constant, filled, own_call
from .sources import Change, own

__all__ = ["BUGS", "Bug", "bug"]


@attrs.frozen
class Bug:
    """One class of bugs."""

    change: Change
    causes: tuple[str, ...] = ()
    """Words of which a cause may hold one; a cause is never required."""
    child: bool = False
    """Whether the child that is called there may be named too: it is called otherwise, or not at all."""


BUGS: dict[str, Bug] = {}


def bug(causes: str = "", *, child: bool = False) -> Callable[[Change], Change]:
    """Add a bug to the table."""

    def add(change: Change) -> Change:
        BUGS[change.__name__] = Bug(change, tuple(causes.split()), child)
        return change

    return add


def _names(table: dict[str, tuple[Callable[[ast.AST], bool], str]], causes: str = "", *, child: bool = False) -> None:
    """Add bugs that fill a template with the first arguments of a call, and with the whole call."""
    for name, (fits, template) in table.items():

        def change(node: ast.AST, fits: Any = fits, template: str = template) -> Any:
            if not fits(node):
                return None
            parts = dict(zip(["_a", "_b", "_c", "_d"], node.args, strict=False))  # type: ignore[attr-defined]
            return filled(template, _whole=node, **parts)

        BUGS[name] = Bug(change, tuple(causes.split()), child)


def _kit(*names: str) -> Callable[[ast.AST], bool]:
    return lambda node: called(node, *names)


def _axis(node: ast.AST) -> bool:
    return called(node, "softmax") and constant(node.args[1]) == -1  # type: ignore[attr-defined]


def _act(*names: str) -> Callable[[ast.AST], bool]:
    return lambda node: called(node, "act") and node.args[1].value in names  # type: ignore[attr-defined]


def _makes(*names: str) -> Callable[[ast.AST], bool]:
    return lambda node: called(node, "activation") and node.args[0].value in names  # type: ignore[attr-defined]


_names(
    {
        "softmax_axis": (_axis, "kit.softmax(_a, -2)"),
        "softmax_missing": (_kit("softmax"), "_a"),
        "softmax_temperature": (_kit("softmax"), "kit.softmax(_a * 0.9, _b)"),
        "softmax_as_sigmoid": (_kit("softmax"), "kit.act(_a, 'sigmoid')"),
        "softmax_twice": (_kit("softmax"), "kit.softmax(kit.softmax(_a, _b), _b)"),
        "probabilities_detached": (_kit("softmax"), "kit.detach(_whole)"),
        "causal_off_by_one": (_kit("causal"), "kit.causal(_a, 1)"),
        "causal_strict": (_kit("causal"), "kit.causal(_a, -1)"),
        "causal_inverted": (_kit("causal"), "kit.turned(_whole)"),
        "causal_missing": (_kit("causal"), "_whole * 0.0"),
        "heads_merged_wrong": (_kit("merge"), "kit.merge(kit.flip(_a, 1))"),
        "heads_turned": (_kit("heads"), "kit.flip(_whole, 1)"),
        "groups_tiled": (_kit("repeat"), "kit.tile(_a, _b, _c)"),
        "positions_shifted": (_kit("positions"), "_whole + 1.0"),
        "positions_scaled": (_kit("positions"), "_whole * 0.5"),
        "roll_missing": (_kit("roll"), "_a"),
        "roll_otherwise": (_kit("roll"), "kit.roll(_a, -(_b), _c)"),
        "upsampled_in_tiles": (_kit("upsample"), "kit.tile(kit.tile(_a, _b, 2), _b, 3)"),
        "pooled_to_corner": (_kit("pool"), "_a[:, :, ::_b, ::_b]"),
        "gelu_flavour": (_act("gelu"), "kit.act(_a, 'gelu_tanh')"),
        "other_activation": (_act("gelu", "silu", "tanh"), "kit.act(_a, 'relu')"),
        "sigmoid_as_tanh": (_act("sigmoid"), "kit.act(_a, 'tanh')"),
        "relu_as_silu": (_act("relu"), "kit.act(_a, 'silu')"),
        "activation_missing": (_kit("act"), "_a"),
        "activation_twice": (_kit("act"), "kit.act(_whole, _b)"),
        "activation_detached": (_kit("act"), "kit.detach(_whole)"),
        "step_after": (_kit("step"), "kit.step(_a, _b + 1 if _b + 1 < _a.shape[kit.time] else 0)"),
        "top_one": (_kit("top"), "kit.top(_a, 1)"),
        "top_all": (_kit("top"), "kit.top(_a, 99)"),
        "exponential_halved": (_kit("exp"), "kit.exp(_a * 0.5)"),
        "root_missing": (_kit("sqrt"), "_a"),
        "logarithm_missing": (_kit("log"), "_a"),
        "stack_reversed": (_kit("stack"), "kit.flip(_whole, kit.time)"),
    }
)
_names(
    {
        "module_gelu_flavour": (_makes("gelu"), "kit.activation('gelu_tanh')"),
        "module_other_activation": (_makes("gelu", "silu", "tanh"), "kit.activation('relu')"),
        "module_relu_as_gelu": (_makes("relu"), "kit.activation('gelu')"),
    },
    causes="approximate activation kind relu gelu silu tanh",
)


def _layer(node: ast.AST) -> bool:
    return own_call(node) is not None and len(node.args) == 1 and own(node.func) not in ("computed",)  # type: ignore[attr-defined]


def _norm(node: ast.AST) -> bool:
    return _layer(node) and "norm" in (own_call(node) or "")


_names(
    {
        "layer_skipped_scale": (_layer, "_whole * 1.01"),
        "layer_detached": (_layer, "kit.detach(_whole)"),
        "input_detached": (_layer, "_whole * 0.5 + kit.detach(_whole) * 0.5"),
        "output_shifted": (_layer, "_whole + 0.01"),
        "output_negated": (_layer, "_whole * -1.0"),
        "output_clipped": (_layer, "_whole - kit.act(_whole - 0.5, 'relu')"),
        "output_narrowed": (_layer, "kit.like(kit.cast(_whole, 'float16'), _whole)"),
        "batch_rolled": (_layer, "kit.roll(_whole, 1, 0)"),
    }
)


def _inner(template: str) -> Change:
    def change(node: ast.AST) -> Any:
        if not _layer(node):
            return None
        return ast.Call(node.func, [filled(template, _a=node.args[0])], node.keywords)  # type: ignore[attr-defined]

    return change


BUGS["given_scaled"] = Bug(_inner("_a * 1.02"))
BUGS["given_detached"] = Bug(_inner("kit.detach(_a)"))
BUGS["given_flipped"] = Bug(_inner("kit.flip(_a, len(_a.shape) - 1)"))
_names(
    {"norm_skipped": (_norm, "_a"), "norm_twice": (_norm, "_f(_whole)")},
    child=True,
)
BUGS["norm_twice"] = Bug(
    lambda node: ast.Call(node.func, [node], []) if _norm(node) else None,  # type: ignore[attr-defined]
    child=True,
)
