"""Change the source of an architecture, one place at a time, and build what it then describes."""

from __future__ import annotations

import ast
import inspect
import itertools
import linecache
import textwrap
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import attrs
import numpy as np

__all__ = ["Change", "Place", "Site", "Source", "parsed", "planted", "sites"]

Change = Callable[[ast.AST], "ast.AST | None"]
"""Returns what a node becomes, or None where it does not apply; it may not change the node."""

_numbers = itertools.count()


@attrs.frozen
class Place:
    """A place in a built model: the class whose code it is, which instance, and the child that is made there."""

    owner: str
    number: int = 0
    child: str | None = None


@attrs.frozen
class Site:
    """A node that a change applies to: the class, the method, the how manieth there."""

    owner: str
    method: str
    index: int
    child: str | None = None
    """The attribute that is being made, in a constructor."""


@attrs.define
class Source:
    """An architecture as a tree of Python: a function of a kit that defines classes and returns a model."""

    function: ast.FunctionDef

    @property
    def classes(self) -> list[ast.ClassDef]:
        """Return the classes, in order."""
        return [node for node in self.function.body if isinstance(node, ast.ClassDef)]

    def copy(self) -> Source:
        """Return a copy."""
        return Source(_copied(self.function))

    def text(self) -> str:
        """Return the source."""
        return ast.unparse(ast.fix_missing_locations(self.function))

    def build(self, kit: Any) -> Any:
        """Return a model."""
        text = self.text()
        if kit.method != "forward":
            text = text.replace("def forward(", f"def {kit.method}(")
        name = f"<diagnosis {next(_numbers)}>"
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        space: dict[str, Any] = {"np": np, "Any": Any, "__name__": "diagnosed"}
        exec(compile(text, name, "exec"), space)
        kit.begin()
        return space[self.function.name](kit)


def parsed(function: Callable[..., Any] | str) -> Source:
    """Return the source of an architecture."""
    text = function if isinstance(function, str) else _text(function)
    tree = ast.parse(text).body[0]
    assert isinstance(tree, ast.FunctionDef)
    if ast.get_docstring(tree):
        tree.body = tree.body[1:]
    return Source(tree)


@cache
def _text(function: Callable[..., Any]) -> str:
    return textwrap.dedent(inspect.getsource(function))


def _copied(node: Any) -> Any:
    if isinstance(node, ast.AST):
        return type(node)(**{name: _copied(value) for name, value in ast.iter_fields(node)})
    return [_copied(one) for one in node] if isinstance(node, list) else node


class _Changer(ast.NodeTransformer):
    """Apply a change to the n-th node that it fits, or to none and count them."""

    def __init__(self, change: Change, at: int | None) -> None:
        self.change, self.at, self.seen = change, at, 0
        self.child: str | None = None
        self.children: list[str | None] = []

    def visit(self, node: ast.AST) -> Any:
        before = self.child
        if isinstance(node, ast.Assign) and (name := own(node.targets[0])):
            self.child = name
        found = self.change(node)
        if found is not None:
            self.children.append(self.child)
            self.seen += 1
            if self.seen - 1 == self.at:
                self.child = before
                return found
        result = self.generic_visit(node)
        self.child = before
        return result


def own(node: ast.AST) -> str | None:
    """Return the name of an attribute of ``self``."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        return node.attr
    return None


def methods(owner: ast.ClassDef) -> Iterator[ast.FunctionDef]:
    """Yield the methods of a class."""
    for node in owner.body:
        if isinstance(node, ast.FunctionDef):
            yield node


def sites(source: Source, change: Change) -> list[Site]:
    """Return where a change applies."""
    found = []
    for owner in source.classes:
        for method in methods(owner):
            changer = _Changer(change, None)
            for statement in method.body:
                changer.visit(statement)
            found += [Site(owner.name, method.name, i, child) for i, child in enumerate(changer.children)]
    return found


def changed(owner: ast.ClassDef, site: Site, change: Change) -> ast.ClassDef:
    """Return a class with the change at a site."""
    copy: ast.ClassDef = _copied(owner)
    for method in methods(copy):
        if method.name == site.method:
            changer = _Changer(change, site.index)
            body = []
            for statement in method.body:
                result = changer.visit(statement)
                body += result if isinstance(result, list) else [] if result is None else [result]
            method.body = body
    return copy


def planted(source: Source, bugs: list[tuple[Site, int, Change]]) -> Source:
    """Return the source with changes, each in one instance of the class that it lies in.

    Bugs in one class lie in different instances.
    """
    wrong: dict[str, dict[int, ast.ClassDef]] = {}
    for site, number, change in bugs:
        owner = next(one for one in source.classes if one.name == site.owner)
        wrong.setdefault(site.owner, {})[number] = changed(owner, site, change)
    result = source.copy()
    body: list[ast.stmt] = []
    for statement in result.function.body:
        body.append(statement)
        if isinstance(statement, ast.ClassDef):
            body += _choice(statement.name, wrong.get(statement.name, {}))
    result.function.body = body
    return result


def counted(source: Source, kit: Any) -> dict[str, int]:
    """Return how many instances of each class a model has."""
    planted(source, []).build(kit)
    return dict(kit.instances)


def _choice(name: str, wrong: dict[int, ast.ClassDef]) -> list[ast.stmt]:
    """Return statements that make a class one whose instances are chosen."""
    body: list[ast.stmt] = ast.parse(f"chosen = {{-1: {name}}}").body
    for number, owner in wrong.items():
        body += [owner, *ast.parse(f"chosen[{number}] = {name}").body]
    return [*body, *ast.parse(f"{name} = kit.chosen({name!r}, chosen)").body]
