"""Mutate source at random, as a slip of the hand does, knowing nothing of what it means."""

from __future__ import annotations

import ast
import random

from .patterns import constant, named, own_call
from .sources import Change, Site, Source, sites

__all__ = ["MUTATIONS", "drawn"]

_OPERATORS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult}


def _operator(node: ast.AST) -> ast.AST | None:
    other = _OPERATORS.get(type(node.op)) if isinstance(node, ast.BinOp) else None
    return ast.BinOp(node.left, other(), node.right) if other else None  # type: ignore[attr-defined]


def _operands(node: ast.AST) -> ast.AST | None:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub | ast.Div | ast.MatMult):
        return ast.BinOp(node.right, node.op, node.left)
    return None


def _left(node: ast.AST) -> ast.AST | None:
    return node.left if isinstance(node, ast.BinOp) else None


def _right(node: ast.AST) -> ast.AST | None:
    return node.right if isinstance(node, ast.BinOp) else None


def _moved(by: float) -> Change:
    def change(node: ast.AST) -> ast.AST | None:
        number = constant(node) if isinstance(node, ast.Constant) else None
        return None if number is None else ast.Constant(type(number)(number + by))

    return change


def _times(by: float) -> Change:
    def change(node: ast.AST) -> ast.AST | None:
        number = constant(node) if isinstance(node, ast.Constant) else None
        return ast.Constant(number * by) if isinstance(number, float) and number else None

    return change


def _unwrapped(node: ast.AST) -> ast.AST | None:
    """Take the first argument instead of the result."""
    return node.args[0] if (named(node) or own_call(node)) and node.args else None  # type: ignore[attr-defined]


def _again(node: ast.AST) -> ast.AST | None:
    if own_call(node) and len(node.args) == 1:  # type: ignore[attr-defined]
        return ast.Call(node.func, [node], [])  # type: ignore[attr-defined]
    return None


def _swapped(node: ast.AST) -> ast.AST | None:
    if isinstance(node, ast.Call) and len(node.args) > 1 and named(node) not in ("linear", "conv", "embedding"):
        first, second, *rest = node.args
        return ast.Call(node.func, [second, first, *rest], node.keywords)
    return None


def _dropped(node: ast.AST) -> ast.AST | None:
    """Leave out an assignment to what has a value already."""
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        inside = {one.id for one in ast.walk(node.value) if isinstance(one, ast.Name)}
        if node.targets[0].id in inside:
            return ast.Pass()
    return None


def _listed(node: ast.AST) -> ast.AST | None:
    """Exchange the first two of a list or of a tuple that is read."""
    if isinstance(node, ast.List | ast.Tuple) and len(node.elts) > 1 and isinstance(node.ctx, ast.Load):
        first, second, *rest = node.elts
        return type(node)([second, first, *rest], node.ctx)
    return None


MUTATIONS: dict[str, Change] = {
    "operator": _operator,
    "operands": _operands,
    "left operand": _left,
    "right operand": _right,
    "one more": _moved(1),
    "one less": _moved(-1),
    "one percent more": _times(1.01),
    "unwrapped": _unwrapped,
    "again": _again,
    "arguments": _swapped,
    "statement": _dropped,
    "elements": _listed,
}


def drawn(source: Source, rng: random.Random) -> tuple[str, Site, Change] | None:
    """Draw a mutation of a source."""
    for name in rng.sample(list(MUTATIONS), len(MUTATIONS)):
        found = sites(source, MUTATIONS[name])
        if found:
            return name, rng.choice(found), MUTATIONS[name]
    return None
