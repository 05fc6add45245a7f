"""List classes of bugs in sums, products, loops and settings."""

from __future__ import annotations

import ast
from typing import Any

from .bugs import BUGS, Bug, bug
from .patterns import called, constant, filled
from .sources import Change, own

__all__ = ["BUGS"]


def _sum(node: ast.AST, *kinds: Any) -> bool:
    """Return whether a sum of tensors is computed: a name, and something that is called."""
    right = isinstance(node, ast.BinOp) and isinstance(node.op, kinds or (ast.Add,))
    return right and not _numbers(node) and any(isinstance(one, ast.Call) for one in ast.walk(node))


def _numbers(node: ast.AST) -> bool:
    """Return whether an expression is about numbers and shapes, not tensors."""
    text = ast.unparse(node)
    return any(word in text for word in ("np.", ".shape", "range(", "//")) or all(
        constant(one) is not None
        for one in (node.left, node.right)  # type: ignore[attr-defined]
    )


def _residual(node: ast.AST) -> ast.Name | None:
    if _sum(node):
        for one in (node.left, node.right):  # type: ignore[attr-defined]
            if isinstance(one, ast.Name):
                return one
    return None


def _other(node: Any) -> Any:
    return node.right if isinstance(node.left, ast.Name) else node.left


@bug()
def residual_missing(node: ast.AST) -> Any:
    return _other(node) if _residual(node) else None


@bug()
def branch_missing(node: ast.AST) -> Any:
    name = _residual(node)
    return filled("_x + _y * 0.0", _x=name, _y=_other(node)) if name else None


@bug()
def residual_scaled(node: ast.AST) -> Any:
    name = _residual(node)
    return filled("_x * 1.03 + _y", _x=name, _y=_other(node)) if name else None


@bug()
def residual_twice(node: ast.AST) -> Any:
    name = _residual(node)
    return filled("_x + _x + _y", _x=name, _y=_other(node)) if name else None


@bug()
def residual_detached(node: ast.AST) -> Any:
    name = _residual(node)
    return filled("kit.detach(_x) + _y", _x=name, _y=_other(node)) if name else None


@bug()
def residual_subtracted(node: ast.AST) -> Any:
    name = _residual(node)
    return filled("_x - _y", _x=name, _y=_other(node)) if name else None


@bug()
def product_as_sum(node: ast.AST) -> Any:
    if not _sum(node, ast.Mult) or constant(node.right) is not None or constant(node.left) is not None:  # type: ignore[attr-defined]
        return None
    return ast.BinOp(node.left, ast.Add(), node.right)  # type: ignore[attr-defined]


@bug()
def gate_missing(node: ast.AST) -> Any:
    if not _sum(node, ast.Mult) or constant(node.right) is not None or constant(node.left) is not None:  # type: ignore[attr-defined]
        return None
    return node.left  # type: ignore[attr-defined]


@bug()
def difference_as_sum(node: ast.AST) -> Any:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub) and not _numbers(node):
        return ast.BinOp(node.left, ast.Add(), node.right)
    return None


def _scale(node: ast.AST) -> Any:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Div) and not _numbers(node):
        number = constant(node.right)
        return number if isinstance(number, float) and number else None
    return None


def _rescaled(factor: float) -> Change:
    def change(node: ast.AST) -> Any:
        number = _scale(node)
        return None if number is None else ast.BinOp(node.left, node.op, ast.Constant(number * factor))  # type: ignore[attr-defined]

    return change


BUGS["scale_slightly_off"] = Bug(_rescaled(1.001))
BUGS["scale_doubled"] = Bug(_rescaled(2.0))
BUGS["scale_missing"] = Bug(lambda node: None if _scale(node) is None else node.left)  # type: ignore[attr-defined]


@bug()
def keys_and_values_crossed(node: ast.AST) -> Any:
    """Swap the second and the third of three."""
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple) and len(node.targets[0].elts) == 3:
        a, b, c = node.targets[0].elts
        return ast.Assign([ast.Tuple([a, c, b], ast.Store())], node.value)
    return None


@bug()
def pair_crossed(node: ast.AST) -> Any:
    """Swap two results."""
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple) and len(node.targets[0].elts) == 2:
        a, b = node.targets[0].elts
        return ast.Assign([ast.Tuple([b, a], ast.Store())], node.value)
    return None


@bug()
def gates_crossed(node: ast.AST) -> Any:
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple) and len(node.targets[0].elts) == 4:
        a, b, c, d = node.targets[0].elts
        return ast.Assign([ast.Tuple([b, a, c, d], ast.Store())], node.value)
    return None


@bug()
def joined_otherwise(node: ast.AST) -> Any:
    """Join in the other order."""
    if called(node, "cat") and isinstance(node.args[0], ast.List) and len(node.args[0].elts) > 1:  # type: ignore[attr-defined]
        return filled("kit.cat(_l, _b)", _l=ast.List(node.args[0].elts[::-1], ast.Load()), _b=node.args[1])  # type: ignore[attr-defined]
    return None


@bug()
def part_missing(node: ast.AST) -> Any:
    """Join zeros instead of the second part."""
    if called(node, "cat") and isinstance(node.args[0], ast.List) and len(node.args[0].elts) == 2:  # type: ignore[attr-defined]
        a, b = node.args[0].elts  # type: ignore[attr-defined]
        return filled("kit.cat(_l, _b)", _l=ast.List([a, filled("_z * 0.0", _z=b)], ast.Load()), _b=node.args[1])  # type: ignore[attr-defined]
    return None


@bug()
def axes_mixed(node: ast.AST) -> Any:
    """Exchange two axes that an image is taken apart into."""
    if called(node, "permute") and len(node.args) == 7:  # type: ignore[attr-defined]
        axes = [constant(one) for one in node.args[1:]]  # type: ignore[attr-defined]
        axes[3], axes[4] = axes[4], axes[3]
        return ast.Call(node.func, [node.args[0], *map(ast.Constant, axes)], [])  # type: ignore[attr-defined]
    return None


@bug(child=True)
def block_skipped(node: ast.AST) -> Any:
    """Leave the first of some blocks out."""
    if isinstance(node, ast.For) and own(node.iter):
        return ast.For(node.target, filled("list(_l)[1:]", _l=node.iter), node.body, [])
    return None


@bug(child=True)
def blocks_reversed(node: ast.AST) -> Any:
    if isinstance(node, ast.For) and own(node.iter):
        return ast.For(node.target, filled("list(_l)[::-1]", _l=node.iter), node.body, [])
    return None


@bug(child=True)
def block_twice(node: ast.AST) -> Any:
    """Call the last of some blocks twice."""
    if isinstance(node, ast.For) and own(node.iter):
        return ast.For(node.target, filled("[*_l, list(_l)[-1]]", _l=node.iter), node.body, [])
    return None


@bug(child=True)
def one_for_another(node: ast.AST) -> Any:
    """Call the first expert of all for each of them."""
    if isinstance(node, ast.For) and called(node.iter, "enumerate"):
        return None
    if isinstance(node, ast.For) and isinstance(node.iter, ast.Call) and ast.unparse(node.iter.func) == "enumerate":
        return ast.For(node.target, filled("enumerate(list(_l)[::-1])", _l=node.iter.args[0]), node.body, [])
    return None


def _setting(name: str, value: Any, *kinds: str) -> Change:
    def change(node: ast.AST) -> Any:
        if not called(node, *kinds):
            return None
        keywords = [ast.keyword(name, value(one.value)) if one.arg == name else one for one in node.keywords]  # type: ignore[attr-defined]
        if all(one.arg != name for one in keywords):
            keywords.append(ast.keyword(name, value(None)))
        return ast.Call(node.func, node.args, keywords)  # type: ignore[attr-defined]

    return change


_lost = lambda given: ast.Constant(given is not None and constant(given) is None and not given.value)  # noqa: E731
BUGS["norm_eps"] = Bug(_setting("eps", lambda _: ast.Constant(1e-3), "layer_norm", "batch_norm"), ("eps",))
BUGS["statistics_momentum"] = Bug(_setting("momentum", lambda _: ast.Constant(0.2), "batch_norm"), ("momentum",))
BUGS["bias_otherwise"] = Bug(_setting("bias", _lost, "linear"), ("bias", "offset"))


@bug()
def eps_by_hand(node: ast.AST) -> Any:
    """Add another epsilon."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and own(node.right) == "eps":
        return filled("_a + _b * 100.0", _a=node.left, _b=node.right)
    return None


@bug()
def mean_of_squares_larger(node: ast.AST) -> Any:
    """Divide by a smaller number than there are."""
    if called(node, "mean") and isinstance(node.args[0], ast.BinOp):  # type: ignore[attr-defined]
        return filled("_whole * 1.1", _whole=node)
    return None


@bug()
def mean_of_other_axis(node: ast.AST) -> Any:
    """Average over one axis, and take the first of the other."""
    if called(node, "mean") and called(node.args[0], "mean"):  # type: ignore[attr-defined]
        inner = node.args[0]  # type: ignore[attr-defined]
        return filled("kit.mean(_x, _a)[..., 0]", _x=inner.args[0], _a=inner.args[1])
    return None


@bug("frozen")
def parameter_frozen(node: ast.AST) -> Any:
    if called(node, "parameter"):
        return filled("kit.frozen(_p)", _p=node)
    return None


@bug()
def parameter_unused(node: ast.AST) -> Any:
    """Leave a parameter out of a product or a sum."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Add) and own(node.right):
        return node.left
    return None


@bug()
def slice_off_by_one(node: ast.AST) -> Any:
    """Take the one before."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple):
        parts = list(node.slice.elts)
        for i, one in enumerate(parts):
            if isinstance(one, ast.Constant) and one.value in (0, 1):
                parts[i] = ast.Constant(1 - one.value)
                return ast.Subscript(node.value, ast.Tuple(parts, ast.Load()), ast.Load())
    return None
