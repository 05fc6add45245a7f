"""Write an architecture down in another way: other modules for the same steps."""

from __future__ import annotations

import ast
import random

from .patterns import called, filled, named, own_call
from .rewrites import REWRITES, Each, constructor_of, everywhere, forward_of, helper, made_by, rewrite, statement, uses
from .sources import Source, own

__all__ = ["REWRITES"]


_HAND_NORM = """
class HandNorm(kit.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.gain = kit.parameter(kit.normal(width))
        self.shift = kit.parameter(kit.normal(width))
        self.eps = eps
    def forward(self, x):
        centred = x - kit.mean(x, -1, True)
        return centred / kit.sqrt(kit.mean(centred * centred, -1, True) + self.eps) * self.gain + self.shift
"""
_HAND_LINEAR = """
class HandLinear(kit.Module):
    def __init__(self, n, m, bias=True):
        super().__init__()
        self.w = kit.parameter(kit.normal(n, m) * 0.3)
        if bias:
            self.b = kit.parameter(kit.normal(m))
        self.has = bias
    def forward(self, x):
        y = x @ self.w
        return y + self.b if self.has else y
"""
_WRAPPED = """
class Wrapped(kit.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner
    def forward(self, x):
        return self.inner(x)
"""


@rewrite
def norms_by_hand(source: Source, rng: random.Random) -> None:
    """Write layer norms out."""
    change = lambda n: (  # noqa: E731
        filled("HandNorm(_n, _e)", _n=n.args[0], _e=n.keywords[0].value) if called(n, "layer_norm") else None
    )
    everywhere(source, change)
    helper(source, _HAND_NORM)


@rewrite
def linears_by_hand(source: Source, rng: random.Random) -> None:
    """Write linear layers out, with the weight as (in, out)."""
    everywhere(
        source,
        lambda n: ast.Call(ast.Name("HandLinear", ast.Load()), n.args, n.keywords) if called(n, "linear") else None,
    )
    helper(source, _HAND_LINEAR)


@rewrite
def wrapped(source: Source, rng: random.Random) -> None:
    """Put a module around some layers."""
    for owner in source.classes:
        for node in made_by(owner).values():
            if called(node.value, "linear", "conv", "layer_norm") and rng.random() < 0.5:
                node.value = filled("Wrapped(_x)", _x=node.value)
    helper(source, _WRAPPED)


@rewrite
def sequences(source: Source, rng: random.Random) -> None:
    """Call a list of blocks as one sequence."""
    for owner in source.classes:
        made = made_by(owner)
        body: list[ast.stmt] = []
        for node in forward_of(owner).body:
            if isinstance(node, ast.For) and (name := own(node.iter)) in made and len(node.body) == 1:
                inner = node.body[0]
                value = made[name].value
                if isinstance(inner, ast.Assign) and called(value, "modules"):
                    given = ast.unparse(inner.targets[0])
                    if ast.unparse(inner.value) == f"{ast.unparse(node.target)}({given})":
                        made[name].value = filled("kit.sequential(*_l)", _l=value.args[0])  # type: ignore[attr-defined]
                        node = statement(f"{given} = self.{name}({given})")
            body.append(node)
        forward_of(owner).body = body


@rewrite
def inlined(source: Source, rng: random.Random) -> None:
    """Write the code of small modules into those that use them."""
    small = {owner.name: owner for owner in source.classes if _is_small(owner)}
    for owner in source.classes:
        for name, node in made_by(owner).items():
            which = (
                node.value.func.id if isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Name) else ""
            )
            if which in small and which != owner.name and uses(owner, name) == 1:
                _inline(owner, name, node, small[which])


def _is_small(owner: ast.ClassDef) -> bool:
    forward, made = forward_of(owner), made_by(owner)
    parts = [named(node.value) for node in made.values()]
    return len(forward.body) == 1 and isinstance(forward.body[0], ast.Return) and len(made) > 0 and all(parts)


def _inline(owner: ast.ClassDef, name: str, node: ast.Assign, inner: ast.ClassDef) -> None:
    source = Source(ast.FunctionDef("", None, [inner], [])).copy()  # type: ignore[arg-type]
    (copy,) = source.classes
    forward, given = forward_of(copy), forward_of(copy).args.args[1].arg
    result = forward.body[0].value  # type: ignore[attr-defined]
    calls = [one for one in ast.walk(forward_of(owner)) if own_call(one) == name]
    often = sum(isinstance(one, ast.Name) and one.id == given for one in ast.walk(result)) > 1
    if len(calls) != 1 or (often and not isinstance(calls[0].args[0], ast.Name)):  # type: ignore[attr-defined]
        return
    constructor = constructor_of(copy)
    assert constructor is not None
    names = [one.arg for one in constructor.args.args[1:]]
    values = dict(zip(names, node.value.args, strict=True))  # type: ignore[attr-defined]
    fill = lambda n: values.get(n.id) if isinstance(n, ast.Name) else None  # noqa: E731
    for part in constructor.body[1:]:
        Each(fill).visit(part)
    for one in [*ast.walk(result), *ast.walk(constructor)]:
        if own(one):
            one.attr = f"{name}_{one.attr}"
    body = constructor_of(owner).body  # type: ignore[union-attr]
    at = body.index(node)
    body[at : at + 1] = constructor.body[1:]
    argument = calls[0].args[0]  # type: ignore[attr-defined]
    inside = Each(lambda n: argument if isinstance(n, ast.Name) and n.id == given else None).visit(result)
    Each(lambda n: inside if own_call(n) == name else None).visit(forward_of(owner))


@rewrite
def idle_dropouts(source: Source, rng: random.Random) -> None:
    """Put dropouts that drop nothing behind some layers."""
    for owner in source.classes:
        constructor = constructor_of(owner)
        linear = {name for name, node in made_by(owner).items() if called(node.value, "linear")}
        if constructor is not None and linear:
            change = lambda n, linear=linear: filled("self.idle(_x)", _x=n) if own_call(n) in linear else None  # noqa: E731
            Each(change).visit(forward_of(owner))
            constructor.body.append(statement("self.idle = kit.dropout(0.0)"))


@rewrite
def softmax_by_hand(source: Source, rng: random.Random) -> None:
    """Write the softmax out."""
    everywhere(
        source,
        lambda n: filled("kit.hand_softmax(_x, _a)", _x=n.args[0], _a=n.args[1]) if called(n, "softmax") else None,
    )


@rewrite
def upcasts(source: Source, rng: random.Random) -> None:
    """Compute softmax in a wider type."""
    everywhere(
        source,
        lambda n: filled("kit.wide_softmax(_x, _a)", _x=n.args[0], _a=n.args[1]) if called(n, "softmax") else None,
    )


def _softmax(source: Source, template: str) -> None:
    everywhere(source, lambda n: filled(template, _x=n.args[0], _a=n.args[1]) if called(n, "softmax") else None)
