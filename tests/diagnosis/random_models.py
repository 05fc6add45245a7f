"""Write models at random, in the neutral language of the kits."""

from __future__ import annotations

import random
import re
from functools import cache

import numpy as np

from .sources import Source, parsed

__all__ = ["random_model"]

TIME = 5


class _Writer:
    """Write classes, each out of steps that keep a value's shape."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.width = self.rng.choice((4, 6, 8))
        self.blocks: list[str] = []
        self.lines: list[str] = []

    def block(self, depth: int) -> str:
        """Write a class and return its name."""
        made: list[str] = []
        body: list[str] = []
        values = ["x"]
        for _ in range(self.rng.randint(1, 4)):
            given = self.rng.choice(values[-2:])
            value = self.step(given, values, made, depth)
            values.append(f"v{len(values)}")
            body.append(f"{values[-1]} = {value}")
        text = "\n".join(body)
        loose = [value for value in values[:-1] if not _read(value, text)]
        end = " + ".join([values[-1], *loose])
        name = f"Block{len(self.blocks)}"
        self.blocks.append(name)
        self.lines += [
            f"    class {name}(kit.Module):",
            "        def __init__(self):",
            "            super().__init__()",
        ]
        self.lines += [f"            {line}" for line in made]
        self.lines += ["        def forward(self, x):", *(f"            {line}" for line in body)]
        self.lines.append(f"            return {end}")
        return name

    def made(self, made: list[str], value: str) -> str:
        """Make an attribute, or take one that computes the same again."""
        again = [line for line in made if line.endswith(f" = {value}")]
        if again and "parameter" not in value and self.rng.random() < 0.15:
            return again[0].partition(" ")[0]
        made.append(f"self.a{len(made)} = {value}")
        return f"self.a{len(made) - 1}"

    def step(self, x: str, values: list[str], made: list[str], depth: int) -> str:
        """Write one step."""
        w = self.width
        linear = lambda n=w, m=w: self.made(made, f"kit.linear({n}, {m})")  # noqa: E731
        act = self.rng.choice(("relu", "gelu", "silu", "tanh", "sigmoid"))
        other = self.rng.choice(values)
        which = self.rng.randrange(13 if depth else 11)
        if which == 0:
            return f"{linear()}({x})"
        if which == 1:
            return f"{self.made(made, f'kit.layer_norm({w}, eps=1e-5)')}({x})"
        if which == 2:
            return f"kit.act({linear()}({x}), {act!r})"
        if which == 3:
            return f"{self.made(made, f'kit.activation({act!r})')}({linear()}({x}))"
        if which == 4:
            return f"{x} + {linear()}(kit.act({linear()}({x}), {act!r}))"
        if which == 5:
            return f"{linear()}({x}) * kit.act({linear()}({other}), 'sigmoid')"
        if which == 6:
            n = self.rng.choice((w, 2 * w, 3))
            return f"{linear(n, w)}({self.made(made, f'kit.activation({act!r})')}({linear(w, n)}({x})))"
        if which == 7:
            q, k, v, out = (linear() for _ in range(4))
            scores = f"kit.softmax(({q}({x}) @ kit.turned({k}({x}))) * 0.5, -1)"
            return f"{other} + {out}({scores} @ {v}({x}))"
        if which == 8:
            return f"{x} + kit.turned({linear(TIME, TIME)}(kit.turned({x})))"
        if which == 9:
            return f"{x} * {self.made(made, f'kit.parameter(kit.normal({w}))')} + {other}"
        if which == 10:
            return f"kit.cat([{linear(w, w // 2)}({x}), {linear(w, w // 2)}({other})], -1)"
        name = self.rng.choice(self.blocks) if self.blocks and self.rng.random() < 0.5 else self.block(depth - 1)
        inner = self.made(made, f"{name}()")
        return f"{x} + {inner}({x})" if which == 11 else f"{inner}({x})"


def _read(name: str, text: str) -> bool:
    """Return whether a value is used after it was made."""
    return re.search(rf"\b{name}\b(?! =)", text) is not None


@cache
def _written(seed: int) -> str:
    writer = _Writer(seed)
    rng, w = writer.rng, writer.width
    names = [writer.block(2) for _ in range(rng.randint(1, 2))]
    names = [rng.choice(names) for _ in range(rng.randint(1, 3))]
    returned = rng.choice(
        ("self.last(x)", "self.last(x)", "self.last(x), x", "{'one': self.last(x), 'two': kit.mean(x, 1)}")
    )
    lines = [
        "def model(kit):",
        *writer.lines,
        "    class Model(kit.Module):",
        "        def __init__(self):",
        "            super().__init__()",
        f"            self.first = kit.linear(6, {w})",
        f"            self.blocks = kit.modules([{', '.join(f'{name}()' for name in names)}])",
        f"            self.last = kit.linear({w}, 3)",
        "        def forward(self, x):",
        "            x = self.first(x)",
        "            for block in self.blocks:",
        "                x = block(x)",
        f"            return {returned}",
        "    return Model()",
    ]
    return "\n".join(lines)


def random_model(seed: int) -> tuple[Source, tuple[np.ndarray, ...]]:
    """Return the source of a random model, and inputs of it."""
    rng = np.random.default_rng(seed)
    return parsed(_written(seed)), (rng.standard_normal((2, TIME, 6)).astype(np.float32),)
