"""Recognise pieces of an architecture's source, and write others in their place."""

from __future__ import annotations

import ast
from typing import Any

from .sources import own

__all__ = ["called", "constant", "filled", "named", "own_call"]


def named(node: ast.AST) -> str:
    """Return the function of the kit that is called, or an empty string."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        value = node.func.value
        if isinstance(value, ast.Name) and value.id == "kit":
            return node.func.attr
    return ""


def called(node: ast.AST, *names: str) -> bool:
    """Return whether a function of the kit is called."""
    return named(node) in names


def own_call(node: ast.AST) -> str | None:
    """Return the attribute of ``self`` that is called."""
    return own(node.func) if isinstance(node, ast.Call) else None


def constant(node: ast.AST) -> Any:
    """Return the number that is written, also a negative one, else None."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = constant(node.operand)
        return None if value is None else -value
    value = node.value if isinstance(node, ast.Constant) else None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


class _Filler(ast.NodeTransformer):
    def __init__(self, parts: dict[str, Any]) -> None:
        self.parts = parts

    def visit_Name(self, node: ast.Name) -> Any:
        return self.parts.get(node.id, node)


def filled(template: str, **parts: Any) -> Any:
    """Return an expression in which names stand for other ones."""
    ready = {name: part if isinstance(part, ast.AST) else ast.Constant(part) for name, part in parts.items()}
    return _Filler(ready).visit(ast.parse(template, mode="eval").body)
