"""Draw toy models at random: a plan of blocks, and two ways of writing it down that compute the same.

A plan says what is computed. A *hand* writes it in one dialect: it chooses names, the order of definition, which blocks
are modules of their own and which lie in the code around them, which activations are modules and which functions.
Two hands, one plan: a right port. A *fault* changes the plan of one block.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np
from hypothesis import strategies as st

from padiff.testing.toy import _tape, columns, functional, rows

__all__ = ["FAULTS", "Hand", "Plan", "a_plan", "apart", "faulty", "numbers", "plans", "written"]

ACTIVATIONS = ("relu", "gelu", "tanh")
COMPOSITES = ("chain", "residual", "sum", "gate", "twice")
FAULTS = {
    "linear": ("no bias",),
    "norm": ("eps",),
    "activation": ("other",),
    "attention": ("heads", "scaled"),
    "chain": ("scaled", "shifted", "cut gradient"),
    "residual": ("dropped", "scaled", "cut gradient"),
    "sum": ("dropped", "scaled"),
    "gate": ("scaled", "added"),
    "twice": ("once", "scaled"),
}
"""Block -> what can be wrong in it."""


@attrs.frozen
class Plan:
    """One block: what it computes, from how many features to how many."""

    op: str
    inner: int
    outer: int
    parts: tuple[Plan, ...] = ()
    detail: Any = None
    fault: str | None = None

    def walk(self) -> list[Plan]:
        """Return this block and all below it."""
        return [self, *(found for part in self.parts for found in part.walk())]


class _Drawer:
    """Draw blocks; ``distinct`` lets no two layers hold parameters of the same shapes: these tell them apart."""

    def __init__(self, pick: Callable[[Sequence[Any]], Any], *, distinct: bool) -> None:
        self._pick, self._distinct = pick, distinct
        self._widths = itertools.count(12, 4)
        self._drawn: set[tuple[str, int]] = set()
        """Kinds of layers that hold parameters, with the width of each that there is."""

    def one_of(self, *choices: Any) -> Any:
        return self._pick(choices)

    def leaf(self, width: int) -> Plan:
        op = self.one_of("linear", "linear", "norm", "activation", "attention")
        if self._distinct and (op, width) in self._drawn:
            op = "linear"
        if op in ("norm", "attention"):
            self._drawn.add((op, width))
        if op == "linear":
            return Plan(op, width, next(self._widths) if self._distinct else self.one_of(4, 4, 8))
        return Plan(op, width, width, detail=self.one_of(*ACTIVATIONS) if op == "activation" else None)

    def kept(self, width: int, depth: int) -> Plan:
        """Return a block that gives as many features as it takes."""
        found = self.block(width, depth)
        if found.outer == width:
            return found
        return Plan("chain", width, width, (found, Plan("linear", found.outer, width)))

    def block(self, width: int, depth: int) -> Plan:
        op = self.one_of(*COMPOSITES) if depth and self.one_of(True, False) else "leaf"
        if op == "leaf":
            return self.leaf(width)
        if op == "chain":
            return self.chain(width, depth - 1)
        parts = [self.kept(width, depth - 1) for _ in range(1 if op in ("residual", "twice") else 2)]
        return Plan(op, width, width, tuple(parts))

    def chain(self, width: int, depth: int) -> Plan:
        parts: list[Plan] = []
        for _ in range(self._pick(range(1, 5))):
            parts.append(self.block(parts[-1].outer if parts else width, depth))
        return Plan("chain", width, parts[-1].outer, tuple(parts))


@st.composite
def plans(draw: Any, *, distinct: bool = False, depth: int = 2) -> Plan:
    """Draw a model."""

    def pick(choices: Sequence[Any]) -> Any:
        few = isinstance(choices, range)
        return draw(st.integers(choices[0], choices[-1]) if few else st.sampled_from(choices))

    return a_plan(pick, distinct=distinct, depth=depth)


def a_plan(pick: Callable[[Sequence[Any]], Any], *, distinct: bool = False, depth: int = 2) -> Plan:
    """Return a model whose parts ``pick`` chooses: a chain of blocks between two linear layers."""
    first = 8 if distinct else 4
    body = _Drawer(pick, distinct=distinct).chain(first, depth)
    return Plan("chain", 4, 3, (Plan("linear", 4, first), *body.parts, Plan("linear", body.outer, 3)))


def faulty(plan: Plan, index: int, which: int) -> Plan:
    """Return the plan with a fault in one of its blocks, counted from the root."""
    counter = iter(range(len(plan.walk())))

    def change(block: Plan) -> Plan:
        mine = next(counter) == index
        parts = tuple(change(part) for part in block.parts)
        names = FAULTS[block.op]
        return attrs.evolve(block, parts=parts, fault=names[which % len(names)] if mine else None)

    return change(plan)


class RowsMade(rows.Module):
    """A block that is a module of its own."""

    def forward(self, x: Any) -> Any:
        return _computed(self, self.steps, x)


class ColumnsMade(columns.Layer):
    """A block that is a module of its own."""

    def forward(self, x: Any) -> Any:
        return _computed(self, self.steps, x)


def _computed(module: Any, steps: tuple[Any, ...], x: Any) -> Any:
    op, fault, *rest = steps
    if op == "call":
        return getattr(module, rest[0])(x)
    if op == "turned":
        made = _computed(module, rest[0], x if fault == "not given" else x.transpose(1, 0, 2))
        return made if fault == "not taken back" else made.transpose(1, 0, 2)
    if op == "function":
        return _function(rest[0], fault)(x)
    if op == "chain":
        for index, step in enumerate(rest):
            x = _computed(module, step, x)
            if index == 0:
                x = _spoilt(x, fault)
        return x
    if op == "twice":
        once = _computed(module, rest[0], x)
        return once if fault == "once" else _computed(module, rest[0], _spoilt(once, fault))
    if op == "residual":
        inner = _computed(module, rest[0], x)
        return inner if fault == "dropped" else _spoilt(inner, fault) + x
    one, other = (_computed(module, step, x) for step in rest)
    if op == "sum":
        return one if fault == "dropped" else _spoilt(one, fault) + other
    return _spoilt(one, fault) + other if fault == "added" else _spoilt(one, fault) * other


def _spoilt(x: Any, fault: str | None) -> Any:
    if fault == "scaled":
        return x * 1.01
    if fault == "shifted":
        return x + 0.01
    return type(x)(x.data.copy()) + x * 0.0 if fault == "cut gradient" else x


def _function(name: str, fault: str | None) -> Any:
    if fault == "other":
        name = {"relu": "gelu", "gelu": "rough", "tanh": "relu"}[name]
    return {
        "relu": functional.relu,
        "gelu": functional.gelu,
        "tanh": functional.tanh,
        "rough": lambda x: functional.gelu(x, "tanh"),
    }[name]


class Hand:
    """Write plans down in one dialect, in a style of its own."""

    def __init__(
        self,
        dialect: str,
        seed: int,
        *,
        ordered: bool = False,
        time_first: bool = False,
        orders: bool = False,
        forgotten: int | None = None,
        misnamed: bool = False,
    ) -> None:
        self.dialect, self.style, self.time_first = dialect, random.Random(seed), time_first
        self.orders = orders
        """Whether each block may take and give its values in (time, batch, features), whatever is around it."""
        self.left = forgotten
        """How many transpositions are still to be written before one is forgotten, if one is."""
        self.misnamed = misnamed
        """Whether names say the same in all dialects, and seldom the right thing."""
        self.ordered = ordered
        """Whether definitions stand in the order of the calls, and names tell no other order."""
        self.places: list[set[str]] = []
        """For each fault: the paths that name it rightly."""

    def model(self, plan: Plan) -> Any:
        """Return the model."""
        model = self._module(plan, "")
        if self.time_first:
            model.steps = ("turned", None, model.steps)
        return model

    def _module(self, plan: Plan, path: str) -> Any:
        made = RowsMade() if self.dialect == "rows" else ColumnsMade()
        children: dict[str, Any] = {}
        made.steps = self._steps(plan, path, children)
        names = list(children)
        if self.misnamed or (self.style.random() < 0.5 and not self.ordered):
            self.style.shuffle(names)
        for name in names:
            setattr(made, name, children[name])
        return made

    def _steps(self, plan: Plan, path: str, children: dict[str, Any]) -> tuple[Any, ...]:
        if not self.orders or self.style.random() < 0.7:
            return self._step(plan, path, children)
        self.time_first = not self.time_first
        step = self._step(plan, path, children)
        self.time_first = not self.time_first
        return self._turned(step, path)

    def _turned(self, step: tuple[Any, ...], path: str) -> tuple[Any, ...]:
        fault = None
        if self.left is not None:
            self.left -= 1
            if self.left == -1:
                fault = self.style.choice(("not given", "not taken back"))
                self.places.append({path})
        return ("turned", fault, step)

    def _step(self, plan: Plan, path: str, children: dict[str, Any]) -> tuple[Any, ...]:
        if plan.op == "activation" and self.style.random() < 0.5:
            if plan.fault:
                self.places.append({path})
            return ("function", plan.fault, plan.detail)
        if plan.op in COMPOSITES:
            if plan.fault:
                self.places.append({path})
            return (plan.op, plan.fault, *(self._part(part, path, children) for part in plan.parts))
        return self._called(plan, path, children)

    def _part(self, plan: Plan, path: str, children: dict[str, Any]) -> tuple[Any, ...]:
        if plan.op in COMPOSITES and self.style.random() < 0.5:
            name = self._name(plan, children)
            children[name] = self._module(plan, _under(path, name))
            return ("call", None, name)
        return self._steps(plan, path, children)

    def _called(self, plan: Plan, path: str, children: dict[str, Any]) -> tuple[Any, ...]:
        name = self._name(plan, children)
        if plan.fault:
            self.places.append({path, _under(path, name)})
        children[name] = made = getattr(self, f"_{plan.op}")(plan)
        call = ("call", None, name)
        takes_time_first = plan.op == "attention" and getattr(made, "time_first", False)
        turned = plan.op == "attention" and takes_time_first != self.time_first
        return self._turned(call, path) if turned else call

    def _name(self, plan: Plan, children: dict[str, Any]) -> str:
        words = ("part", plan.op) if self.dialect == "rows" else ("m", "unit", "b")
        words = ("a", "b") if self.misnamed else words
        number = self.style.randrange(4 if self.misnamed else 100)
        name = f"{self.style.choice(words)}{len(children) if self.ordered else number}"
        while name in children:
            name += "x"
        children[name] = None
        return name

    def _linear(self, plan: Plan) -> Any:
        cls = rows.Linear if self.dialect == "rows" else columns.Dense
        return cls(plan.inner, plan.outer, bias=plan.fault != "no bias")

    def _norm(self, plan: Plan) -> Any:
        cls = rows.LayerNorm if self.dialect == "rows" else columns.LayerNormalization
        return cls(plan.inner, 1e-2 if plan.fault else 1e-5)

    def _activation(self, plan: Plan) -> Any:
        made = {
            "relu": (rows.ReLU, columns.Rectifier),
            "gelu": (rows.GELU, columns.Gelu),
            "tanh": (rows.Tanh, columns.Tangent),
            "rough": (lambda: rows.GELU("tanh"), lambda: columns.Gelu(True)),
        }
        name = {"relu": "gelu", "gelu": "rough", "tanh": "relu"}[plan.detail] if plan.fault else plan.detail
        return made[name][self.dialect != "rows"]()

    def _attention(self, plan: Plan) -> Any:
        heads = 4 if plan.fault == "heads" else 2
        if self.dialect == "rows":
            return (ScaledRows if plan.fault == "scaled" else rows.Attention)(plan.inner, heads)
        time_first = self.orders and self.style.random() < 0.5
        return (ScaledColumns if plan.fault == "scaled" else columns.SelfAttention)(plan.inner, heads, time_first)


class ScaledRows(rows.Attention):
    """Attention with another scale."""

    def forward(self, x: Any) -> Any:
        n = x.shape[-1]
        packed = functional.linear(x, self.packed.transpose(1, 0), self.packed_bias)
        q, k, v = (packed[..., i * n : (i + 1) * n] for i in range(3))
        return self.out(functional.attention(q, k, v, self.heads, 0.5))


class ScaledColumns(columns.SelfAttention):
    """Attention with another scale."""

    def forward(self, x: Any) -> Any:
        return self.result(self.attention(self.query(x), self.key(x), self.value(x), 0.5))


def _under(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def numbers(*shape: int) -> Any:
    """Return an input of any generated model."""
    return np.random.default_rng(0).standard_normal(shape or (2, 5, 4), dtype=np.float32)


def written(dialect: str, plan: Plan, style: int, weights: int = 0, **options: Any) -> tuple[Any, list[set[str]]]:
    """Return a model of a plan, and where its faults may be named."""
    np.random.seed(weights)
    hand = Hand(dialect, style, **options)
    return hand.model(plan), hand.places


def apart(one: Any, other: Any, *shape: int) -> float:
    """Return how far two models are apart, run freely in float64: their outputs, and the gradients of the input.

    This is the judge of padiff: it knows nothing of alignment, forcing or tolerance.
    """
    worst = 0.0
    found = []
    for dialect, model in ((rows, one), (columns, other)):
        before = [(tensor, tensor.data) for _, module in model.walk() for tensor in module.tensors().values()]
        model.to("float64")
        x = dialect.Tensor(numbers(*shape).astype("float64"), requires_grad=True)
        y = model(x)
        _tape.backward([(y, np.random.default_rng(5).standard_normal(y.shape))])
        found.append((y.data, x.grad))
        for tensor, data in before:
            tensor.data, tensor.grad = data, None
    for a, b in zip(*found, strict=True):
        scale = max(float(np.linalg.norm(a)), 1e-30)
        worst = max(worst, float(np.linalg.norm(a - b)) / scale)
    return worst
