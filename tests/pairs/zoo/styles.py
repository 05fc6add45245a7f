"""Write one small network in many styles, all of which compute the same."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import attrs

from . import native

__all__ = ["STYLES", "build"]

STYLES = (
    "plain",
    "sequential",
    "nested",
    "identity",
    "functional",
    "defined_backwards",
    "called_otherwise",
    "renamed",
    "renamed_backwards",
    "flat",
)


@attrs.frozen
class Dialect:
    """Name what a framework calls its own way; the constructors of the rest are alike."""

    module: str
    linear: str
    sequence: str
    chain: str
    functional: str = "nn.functional"
    norm: tuple[Any, ...] = (8,)


DIALECTS = {
    "torch": Dialect("Module", "Linear", "ModuleList", "Sequential"),
    "paddle": Dialect("Layer", "Linear", "LayerList", "Sequential"),
    "mindspore": Dialect("Cell", "Dense", "CellList", "SequentialCell", "ops", ((8,), -1, -1, "ones", "zeros", 1e-5)),
}


def build(framework: str, style: str, *, seed: int = 0) -> Any:
    """Return the network: two same-shaped branches q and k, three same-shaped layers, a norm and a head."""
    native.seed(framework, seed)
    dialect = DIALECTS[framework]
    nn = import_module(f"{framework}.nn")
    functional = import_module(f"{framework}.{dialect.functional}")
    base, linear, chain = (getattr(nn, name) for name in (dialect.module, dialect.linear, dialect.chain))

    class module(base):
        """Run ``forward`` under each framework's name for it."""

        def construct(self, x):
            return self.forward(x)

    def norm() -> Any:
        return nn.LayerNorm(*dialect.norm)

    def head() -> Any:
        return linear(8, 3)

    class Plain(module):
        """Keep one attribute for each module, in order of execution."""

        def __init__(self):
            super().__init__()
            self.q = linear(8, 8)
            self.k = linear(8, 8)
            self.fc1 = linear(8, 8)
            self.act = nn.ReLU()
            self.fc2 = linear(8, 8)
            self.fc3 = linear(8, 8)
            self.norm = norm()
            self.head = head()

        def forward(self, x):
            q = self.q(x)
            k = self.k(x)
            x = q * functional.sigmoid(k)
            x = self.act(self.fc1(x))
            x = self.act(self.fc2(x))
            return self.head(self.norm(x + self.fc3(x)))

    class Functional(Plain):
        """Call relu as a function."""

        def forward(self, x):
            x = self.q(x) * functional.sigmoid(self.k(x))
            x = functional.relu(self.fc2(functional.relu(self.fc1(x))))
            return self.head(self.norm(x + self.fc3(x)))

    class CalledOtherwise(Plain):
        """Call the independent branches the other way round."""

        def forward(self, x):
            gate = functional.sigmoid(self.k(x))
            x = self.q(x) * gate
            x = self.act(self.fc2(self.act(self.fc1(x))))
            return self.head(self.norm(self.fc3(x) + x))

    class DefinedBackwards(Plain):
        """Define the same attributes from the last to the first."""

        def __init__(self):
            module.__init__(self)
            for name in ("head", "norm", "fc3", "fc2", "fc1", "k", "q"):
                layer = head() if name == "head" else norm() if name == "norm" else linear(8, 8)
                setattr(self, name, layer)
            self.act = nn.ReLU()

    class Identities(Plain):
        """Put identities and idle dropouts between."""

        def __init__(self):
            super().__init__()
            self.before, self.between, self.after = nn.Identity(), nn.Identity(), nn.Dropout(p=0.0)

        def forward(self, x):
            x = self.before(x)
            x = self.between(self.q(x)) * functional.sigmoid(self.after(self.k(x)))
            x = self.between(self.act(self.fc1(x)))
            x = self.act(self.fc2(x))
            return self.after(self.head(self.norm(x + self.fc3(x))))

    class Wrapped(module):
        """Hold the layers in Sequentials, inside one another where ``depth`` asks."""

        def __init__(self, depth):
            super().__init__()
            self.q = linear(8, 8)
            self.k = chain(linear(8, 8), nn.Sigmoid())
            body = chain(linear(8, 8), nn.ReLU(), linear(8, 8), nn.ReLU())
            tail = chain(norm(), head())
            for _ in range(depth):
                body, tail = chain(body), chain(chain(tail))
            self.body, self.fc3, self.tail = body, linear(8, 8), tail

        def forward(self, x):
            x = self.body(self.q(x) * self.k(x))
            return self.tail(x + self.fc3(x))

    class Renamed(module):
        """Give the modules other names; the order of execution tells them apart."""

        def __init__(self, backwards=False):
            super().__init__()
            names = ["alpha", "beta", "gamma", "delta", "epsilon"]
            for name in reversed(names) if backwards else names:
                setattr(self, name, linear(8, 8))
            self.scale, self.classifier = norm(), head()

        def forward(self, inputs):
            hidden = self.alpha(inputs) * functional.sigmoid(self.beta(inputs))
            hidden = functional.relu(self.delta(functional.relu(self.gamma(hidden))))
            return self.classifier(self.scale(hidden + self.epsilon(hidden)))

    class Flat(module):
        """Keep everything in one list."""

        def __init__(self):
            super().__init__()
            layers = [linear(8, 8) for _ in range(5)]
            self.layers = getattr(nn, dialect.sequence)([*layers, norm(), head()])

        def forward(self, x):
            q, k, fc1, fc2, fc3, norm, last = self.layers
            x = q(x) * functional.sigmoid(k(x))
            x = functional.relu(fc2(functional.relu(fc1(x))))
            return last(norm(x + fc3(x)))

    makers = {
        "plain": Plain,
        "sequential": lambda: Wrapped(0),
        "nested": lambda: Wrapped(2),
        "identity": Identities,
        "functional": Functional,
        "defined_backwards": DefinedBackwards,
        "called_otherwise": CalledOtherwise,
        "renamed": Renamed,
        "renamed_backwards": lambda: Renamed(backwards=True),
        "flat": Flat,
    }
    return makers[style]()
