"""Write an architecture down in another way that computes the same."""

from __future__ import annotations

import ast
import random
from collections.abc import Callable
from typing import Any

from .patterns import called, constant, filled, own_call
from .sources import Source, methods, own

__all__ = ["LAYOUTS", "REWRITES", "rewritten"]

Rewrite = Callable[[Source, random.Random], None]
REWRITES: dict[str, Rewrite] = {}
"""Name -> what changes a source in place."""
LAYOUTS = {"time_first": {"time_first": True}}
"""Rewrites that are an order of axes -> what the kit is made with."""


def rewrite(function: Rewrite) -> Rewrite:
    """Add a rewrite to the table."""
    REWRITES[function.__name__] = function
    return function


def rewritten(source: Source, names: list[str], seed: int) -> Source:
    """Return a source, rewritten."""
    result = source.copy()
    for i, name in enumerate(names):
        if name in REWRITES:
            REWRITES[name](result, random.Random(f"{seed} {i}"))
            ast.fix_missing_locations(result.function)
    return result


class Each(ast.NodeTransformer):
    """Replace every node, inner ones first, by what a function makes of it."""

    def __init__(self, function: Callable[[ast.AST], Any]) -> None:
        self.function = function

    def visit(self, node: ast.AST) -> Any:
        node = self.generic_visit(node)
        found = self.function(node)
        return node if found is None else found


def everywhere(source: Source, function: Callable[[ast.AST], Any]) -> None:
    for owner in source.classes:
        Each(function).visit(owner)


def constructor_of(owner: ast.ClassDef) -> ast.FunctionDef | None:
    return next((method for method in methods(owner) if method.name == "__init__"), None)


def forward_of(owner: ast.ClassDef) -> ast.FunctionDef:
    return next(method for method in methods(owner) if method.name == "forward")


def made_by(owner: ast.ClassDef) -> dict[str, ast.Assign]:
    """Return the statements that make attributes, by attribute."""
    body = getattr(constructor_of(owner), "body", [])
    return {name: node for node in body if isinstance(node, ast.Assign) and (name := own(node.targets[0]))}


def uses(owner: ast.ClassDef, name: str) -> int:
    return sum(own(node) == name for node in ast.walk(forward_of(owner)))


def statement(text: str) -> ast.stmt:
    return ast.parse(text).body[0]


def helper(source: Source, text: str) -> None:
    """Put a class before all others, once."""
    made = statement(text)
    assert isinstance(made, ast.ClassDef)
    if all(owner.name != made.name for owner in source.classes):
        source.function.body.insert(0, made)


@rewrite
def renamed(source: Source, rng: random.Random) -> None:
    """Give all attributes other names."""
    words = rng.choice((["unit", "part", "m"], ["layer", "block", "sub"], ["x", "y", "z"]))
    numbers = rng.sample(range(100), 60)
    for owner in source.classes:
        names = {name: f"{rng.choice(words)}{numbers.pop()}" for name in made_by(owner)}
        for node in ast.walk(owner):
            if own(node) in names:
                node.attr = names[node.attr]  # type: ignore[attr-defined]


@rewrite
def reordered(source: Source, rng: random.Random) -> None:
    """Define the attributes in another order."""
    for owner in source.classes:
        if (constructor := constructor_of(owner)) is not None:
            first, *rest = constructor.body
            rng.shuffle(rest)
            rest.sort(
                key=lambda node: any(own(n) for n in ast.walk(node) if isinstance(getattr(n, "ctx", None), ast.Load))
            )
            constructor.body = [first, *rest]  # what takes another attribute comes after all that take none


@rewrite
def functional(source: Source, rng: random.Random) -> None:
    """Call activations as functions."""
    for owner in source.classes:
        made = {name: node for name, node in made_by(owner).items() if called(node.value, "activation")}
        for name, node in made.items():
            constructor_of(owner).body.remove(node)  # type: ignore[union-attr]
            which = node.value.args[0]  # type: ignore[attr-defined]
            change = lambda n, name=name, which=which: (  # noqa: E731
                filled("kit.act(_x, _a)", _x=n.args[0], _a=which) if own_call(n) == name else None
            )
            Each(change).visit(owner)


@rewrite
def modular(source: Source, rng: random.Random) -> None:
    """Make modules of activations that are functions."""
    for owner in source.classes:
        constructor = constructor_of(owner)
        names: list[str] = []

        def change(node: ast.AST, names: list[str] = names) -> Any:
            if called(node, "act") and isinstance(node.args[1], ast.Constant):  # type: ignore[attr-defined]
                names.append(node.args[1].value)  # type: ignore[attr-defined]
                return filled(f"self.activation{len(names)}(_x)", _x=node.args[0])  # type: ignore[attr-defined]
            return None

        if constructor is not None:
            Each(change).visit(forward_of(owner))
            lines = [f"self.activation{i} = kit.activation({name!r})" for i, name in enumerate(names, 1)]
            constructor.body += [statement(line) for line in lines]


@rewrite
def outlined(source: Source, rng: random.Random) -> None:
    """Put two layers that follow each other into a sequence of its own."""
    for owner in source.classes:
        made = made_by(owner)
        for node in list(ast.walk(forward_of(owner))):
            outer = own_call(node)
            if outer is None or len(node.args) != 1:  # type: ignore[attr-defined]
                continue
            inner = own_call(node.args[0])  # type: ignore[attr-defined]
            fit = inner in made and outer in made and uses(owner, inner or "") == uses(owner, outer) == 1
            if not fit or len(node.args[0].args) != 1:  # type: ignore[attr-defined]
                continue
            body = constructor_of(owner).body  # type: ignore[union-attr]
            line = filled("kit.sequential(_a, _b)", _a=made[inner].value, _b=made[outer].value)  # type: ignore[index]
            made[outer].value = line
            body.remove(made.pop(inner))  # type: ignore[arg-type]
            node.args = node.args[0].args  # type: ignore[attr-defined]


@rewrite
def packed(source: Source, rng: random.Random) -> None:
    """Compute queries, keys and values by one layer."""
    for owner in source.classes:
        made = made_by(owner)
        for node in ast.walk(forward_of(owner)):
            if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple)):
                continue
            names = [own_call(one) for one in node.value.elts]
            same = {ast.unparse(one.args[0]) for one in node.value.elts if isinstance(one, ast.Call)}
            layers = [made[name].value for name in names if name in made and called(made[name].value, "linear")]
            if len(layers) < len(names) or len(same) != 1:
                continue
            body = constructor_of(owner).body  # type: ignore[union-attr]
            for name in names:
                body.remove(made[name])  # type: ignore[index]
            sizes = ast.List([layer.args[1] for layer in layers], ast.Load())  # type: ignore[attr-defined]
            one = layers[0]
            whole = filled("kit.linear(_n, sum(self.sizes))", _n=one.args[0])  # type: ignore[attr-defined]
            whole.keywords = one.keywords  # type: ignore[attr-defined]
            body.append(ast.Assign([filled("self.sizes")], sizes))
            body.append(ast.Assign([filled("self.packed")], whole))
            for target in (body[-1], body[-2]):
                target.targets[0].ctx = ast.Store()  # type: ignore[attr-defined]
            node.value = filled("kit.cut(self.packed(_x), self.sizes)", _x=node.value.elts[0].args[0])  # type: ignore[attr-defined]


@rewrite
def unpacked(source: Source, rng: random.Random) -> None:
    """Compute queries, keys and values by layers of their own."""
    for owner in source.classes:
        made = made_by(owner)
        for node in ast.walk(forward_of(owner)):
            value = node.value if isinstance(node, ast.Assign) else None
            if value is None or not called(value, "chunks"):
                continue
            name = own_call(value.args[0])  # type: ignore[attr-defined]
            if name is None or name not in made or not called(made[name].value, "linear"):
                continue
            body = constructor_of(owner).body  # type: ignore[union-attr]
            body.remove(made[name])
            n = ast.unparse(made[name].value.args[0])  # type: ignore[attr-defined]
            given = ast.unparse(value.args[0].args[0])  # type: ignore[attr-defined]
            body += [statement(f"self.{letter}_part = kit.linear({n}, {n})") for letter in "qkv"]
            node.value = filled(", ".join(f"self.{letter}_part({given})" for letter in "qkv"))  # type: ignore[attr-defined]


@rewrite
def commuted(source: Source, rng: random.Random) -> None:
    """Exchange the sides of sums and products."""

    def change(node: ast.AST) -> Any:
        tensors = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mult)
        if tensors and constant(node.left) is None and constant(node.right) is None and not _plain(node):
            return ast.BinOp(node.right, node.op, node.left)
        return None

    for owner in source.classes:
        Each(change).visit(forward_of(owner))


def _direct(node: ast.AST) -> list[ast.AST]:
    """Return the operands of nested operators."""
    if isinstance(node, ast.BinOp):
        return [*_direct(node.left), *_direct(node.right)]
    return [node]


def _plain(node: ast.AST) -> bool:
    """Return whether an expression is about numbers and shapes, not tensors."""
    text = ast.unparse(node)
    if any(isinstance(one, ast.Constant) and type(one.value) is int for one in _direct(node)):
        return True
    return any(word in text for word in ("np.", ".shape", "range", "//")) or not any(
        isinstance(one, ast.Call) or (isinstance(one, ast.Name) and one.id in ("x", "y", "z", "t", "a", "image"))
        for one in ast.walk(node)
    )


@rewrite
def scales_first(source: Source, rng: random.Random) -> None:
    """Scale a factor of a product instead of the product."""

    def change(node: ast.AST) -> Any:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and isinstance(node.left, ast.BinOp):
            inner = node.left
            if isinstance(inner.op, ast.MatMult) and constant(node.right) is not None:
                return filled("(_a * _c) @ _b", _a=inner.left, _b=inner.right, _c=node.right)
        return None

    everywhere(source, change)


@rewrite
def divisions(source: Source, rng: random.Random) -> None:
    """Divide by the inverse of a number instead of multiplying."""

    def change(node: ast.AST) -> Any:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            number = constant(node.right)
            if isinstance(number, float) and number:
                return filled("_a / _c", _a=node.left, _c=1 / number)
        return None

    for owner in source.classes:
        Each(change).visit(forward_of(owner))


@rewrite
def negations(source: Source, rng: random.Random) -> None:
    """Add what is negated instead of subtracting."""

    def change(node: ast.AST) -> Any:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub) and not _plain(node):
            return filled("_a + _b * -1.0", _a=node.left, _b=node.right)
        return None

    for owner in source.classes:
        Each(change).visit(forward_of(owner))


@rewrite
def methods_apart(source: Source, rng: random.Random) -> None:
    """Compute in a method that ``forward`` calls."""
    for owner in source.classes:
        forward = forward_of(owner)
        names = [one.arg for one in forward.args.args[1:]]
        helper = statement(f"def computed(self, {', '.join(names)}): pass")
        helper.body = forward.body  # type: ignore[attr-defined]
        forward.body = [statement(f"return self.computed({', '.join(names)})")]
        owner.body.append(helper)


@rewrite
def temporaries(source: Source, rng: random.Random) -> None:
    """Give what is handed to a layer a name first."""
    for owner in source.classes:
        body: list[ast.stmt] = []
        for statement in forward_of(owner).body:
            if isinstance(statement, ast.Return | ast.Assign) and isinstance(statement.value, ast.Call):
                arguments = statement.value.args
                if own_call(statement.value) and len(arguments) == 1 and not isinstance(arguments[0], ast.Name):
                    body.append(ast.Assign([ast.Name("given", ast.Store())], arguments[0]))
                    statement.value.args = [ast.Name("given", ast.Load())]
            body.append(statement)
        forward_of(owner).body = body
