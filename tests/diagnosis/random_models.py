"""Write models at random, in the neutral language of the kits."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from functools import cache

import numpy as np

from .sources import Source, parsed

__all__ = ["random_model"]

TIME = 5
WORDS = 7
"""How many there are, of which ids are drawn."""
ACTIVATIONS = ("relu", "gelu", "silu", "tanh", "sigmoid")


class _Block:
    """One class that is being written: what it makes, and what it computes."""

    def __init__(self, writer: _Writer, depth: int) -> None:
        self.rng, self.width, self.writer, self.depth = writer.rng, writer.width, writer, depth
        self.made: list[str] = []
        self.body: list[str] = []
        self.values = ["x"]
        self.pair = self.rng.random() < 0.15
        """Whether it returns a second value beside the first."""

    def written(self) -> list[str]:
        """Write it, with each value that was made used."""
        for _ in range(self.rng.randint(1, 4)):
            given = self.rng.choice(self.values[-2:])
            step = self.rng.choice(_STEPS if self.depth else _LEAVES)
            value = step(self, given, self.rng.choice(self.values))
            self.values.append(f"v{len(self.values)}")
            self.body.append(f"{self.values[-1]} = {value}")
        text = "\n".join(self.body)
        loose = [value for value in self.values[:-1] if not _read(value, text)]
        end = " + ".join([self.values[-1], *loose])
        if self.pair:
            end = f"{end}, {self.rng.choice(self.values)}"
        if self.rng.random() < 0.1:
            self.made.append(f"self.spare = {self.linear()[0]}" if self.rng.random() < 0.5 else self.parameter("spare"))
        return [
            "        def __init__(self):",
            "            super().__init__()",
            *(f"            {line}" for line in self.made or ["pass"]),
            "        def forward(self, x):",
            *(f"            {line}" for line in self.body),
            f"            return {end}",
        ]

    def has(self, value: str) -> str:
        """Make an attribute, or take one that computes the same again."""
        again = [line for line in self.made if line.endswith(f" = {value}")]
        if again and "parameter" not in value and self.rng.random() < 0.15:
            return again[0].partition(" ")[0]
        self.made.append(f"self.a{len(self.made)} = {value}")
        return f"self.a{len(self.made) - 1}"

    def linear(self, n: int | None = None, m: int | None = None) -> tuple[str, str]:
        """Return what makes a linear layer, and its name."""
        bias = ", bias=False" if self.rng.random() < 0.15 else ""
        value = f"kit.linear({n or self.width}, {m or self.width}{bias})"
        return value, self.has(value)

    def layer(self, x: str, n: int | None = None, m: int | None = None) -> str:
        """Write a linear layer of a value."""
        return f"{self.linear(n, m)[1]}({x})"

    def parameter(self, name: str) -> str:
        """Write an attribute that is a parameter, frozen sometimes."""
        value = f"kit.parameter(kit.normal({self.width}))"
        return f"self.{name} = {f'kit.frozen({value})' if self.rng.random() < 0.2 else value}"

    def act(self) -> str:
        """Draw an activation."""
        return repr(self.rng.choice(ACTIVATIONS))


Step = Callable[[_Block, str, str], str]
"""Writes an expression of a value and of another one, in the shape of both."""


def _attention(b: _Block, x: str, other: str) -> str:
    scores = f"({b.layer(x)} @ kit.turned({b.layer(x)})) * 0.5"
    if b.rng.random() < 0.4:
        b.body.append(f"scores = {scores}")
        scores = "scores + kit.causal(scores)"
    return f"{other} + {b.linear()[1]}(kit.softmax({scores}, -1) @ {b.layer(x)})"


def _inner(b: _Block, x: str, other: str) -> str:
    rng, writer = b.rng, b.writer
    name = rng.choice(list(writer.blocks)) if writer.blocks and rng.random() < 0.5 else writer.block(b.depth - 1)
    inner = b.has(f"{name}()")
    if writer.blocks[name]:
        b.body.append(f"one, two = {inner}({x})")
        return rng.choice(("one + two", "one * kit.act(two, 'tanh')", "two + one", "one"))
    return rng.choice((f"{x} + {inner}({x})", f"{inner}({x})", f"{inner}({x}) * {other}"))


def _recurrent(b: _Block, x: str, other: str) -> str:
    given, kept = b.linear()[1], b.linear()[1]
    b.body += [
        f"state, steps = {x}[:, 0] * 0.0, []",
        f"for i in range({TIME}):",
        f"    state = kit.act({given}({x}[:, i]) + {kept}(state), 'tanh')",
        "    steps.append(state)",
    ]
    return "kit.stack(steps)"


def _normed(b: _Block, x: str, other: str) -> str:
    norm = b.has(f"kit.batch_norm({b.width})")
    b.body.append(f"image = kit.permute(kit.reshape({x}, *{x}.shape, 1), 0, 2, 1, 3)")
    return f"kit.reshape(kit.permute({norm}(image), 0, 2, 1, 3), *{x}.shape)"


def _halves(b: _Block, x: str, other: str) -> str:
    half = b.width // 2
    b.body.append(f"left, right = kit.chunks({x}, 2)")
    return f"kit.cat([{b.layer('left', half, half)}, kit.act(right, {b.act()})], -1)"


def _wider(b: _Block, x: str, other: str) -> str:
    n = b.rng.choice((b.width, 2 * b.width, 3))
    act = b.has(f"kit.activation({b.act()})")
    return b.layer(f"{act}({b.layer(x, b.width, n)})", n, b.width)


_LEAVES: tuple[Step, ...] = (
    lambda b, x, other: b.layer(x),
    lambda b, x, other: f"{b.has(f'kit.layer_norm({b.width}, eps=1e-5)')}({x})",
    lambda b, x, other: f"kit.act({b.layer(x)}, {b.act()})",
    lambda b, x, other: f"{b.has(f'kit.activation({b.act()})')}({b.layer(x)})",
    lambda b, x, other: f"{x} + {b.linear()[1]}(kit.act({b.layer(x)}, {b.act()}))",
    lambda b, x, other: f"{b.layer(x)} * kit.act({b.layer(other)}, 'sigmoid')",
    _wider,
    _attention,
    lambda b, x, other: f"{x} + kit.turned({b.layer(f'kit.turned({x})', TIME, TIME)})",
    lambda b, x, other: f"{x} * {b.has(b.parameter('')[8:])} + {other}",
    lambda b, x, other: f"kit.cat([{b.layer(x, m=b.width // 2)}, {b.layer(other, m=b.width // 2)}], -1)",
    _recurrent,
    _normed,
    _halves,
    lambda b, x, other: f"{x} * kit.constant(np.linspace(0.5, 1.5, {b.width}), {x})",
    lambda b, x, other: f"{x} + kit.detach(kit.act({b.layer(other)}, {b.act()}))",
    lambda b, x, other: f"kit.flip({x}, 1) + {other}",
    lambda b, x, other: f"{x} / (kit.sqrt(kit.mean({x} * {x}, -1, True) + 1e-5))",
    lambda b, x, other: f"kit.act(kit.act({x}, {b.act()}), {b.act()})",
)
_STEPS: tuple[Step, ...] = (*_LEAVES, *[_inner] * 4)


class _Writer:
    """Write classes, each out of steps that keep a value's shape."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.width = self.rng.choice((4, 6, 8))
        self.blocks: dict[str, bool] = {}
        """Class -> whether it returns two values."""
        self.lines: list[str] = []

    def block(self, depth: int) -> str:
        """Write a class and return its name."""
        block = _Block(self, depth)
        lines = block.written()
        name = f"Block{len(self.blocks)}"
        self.blocks[name] = block.pair
        self.lines += [f"    class {name}(kit.Module):", *lines]
        return name


def _read(name: str, text: str) -> bool:
    """Return whether a value is used after it was made."""
    return re.search(rf"\b{name}\b(?! =)", text) is not None


ENDS = (
    "self.last(x)",
    "self.last(x)",
    "self.last(x), x",
    "{'one': self.last(x), 'two': kit.mean(x, 1)}",
    "{'all': [self.last(x), kit.mean(x, 1)], 'seen': seen}",
)


@cache
def _written(seed: int) -> tuple[str, bool, bool]:
    writer = _Writer(seed)
    rng, w = writer.rng, writer.width
    names = [writer.block(2) for _ in range(rng.randint(1, 2))]
    names = [rng.choice(names) for _ in range(rng.randint(1, 3))]
    ids, mask = rng.random() < 0.3, rng.random() < 0.2
    returned = rng.choice(ENDS)
    lines = [
        "def model(kit):",
        *writer.lines,
        "    class Model(kit.Module):",
        "        def __init__(self):",
        "            super().__init__()",
        f"            self.first = kit.linear(6, {w})",
        *([f"            self.words = kit.embedding({WORDS}, {w})"] if ids else []),
        f"            self.blocks = kit.modules([{', '.join(f'{name}()' for name in names)}])",
        f"            self.last = kit.linear({w}, 3)",
        f"        def forward(self, x{', ids' * ids}{', mask' * mask}):",
        f"            x = self.first(x){' + self.words(ids)' * ids}",
        "            for block in self.blocks:",
        "                seen = block(x)",
        "                x = seen[0] + seen[1] if isinstance(seen, tuple) else seen",
        *([f"                x = x * kit.reshape(mask, 2, {TIME}, 1)"] if mask else []),
        *(["            seen = x * 0.5"] if "seen" in returned else []),
        f"            return {returned}",
        "    return Model()",
    ]
    return "\n".join(lines), ids, mask


def random_model(seed: int) -> tuple[Source, tuple[np.ndarray, ...]]:
    """Return the source of a random model, and inputs of it."""
    rng = np.random.default_rng(seed)
    text, ids, mask = _written(seed)
    given = [rng.standard_normal((2, TIME, 6)).astype(np.float32)]
    given += [rng.integers(0, WORDS, (2, TIME))] if ids else []
    given += [(rng.random((2, TIME)) < 0.7).astype(np.float32)] if mask else []
    return parsed(text), tuple(given)
