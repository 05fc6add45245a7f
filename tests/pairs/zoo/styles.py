"""Write one small network in many styles, all of which compute the same."""

from __future__ import annotations

from importlib import import_module
from typing import Any

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


def build(framework: str, style: str, *, seed: int = 0) -> Any:
    """Return the network: two same-shaped branches q and k, three same-shaped layers, a norm and a head."""
    native = import_module(framework)
    (native.manual_seed if framework == "torch" else native.seed)(seed)
    nn, functional = native.nn, native.nn.functional
    module = nn.Module if framework == "torch" else nn.Layer

    def head() -> Any:
        return nn.Linear(8, 3)

    class Plain(module):
        """Keep one attribute for each module, in order of execution."""

        def __init__(self):
            super().__init__()
            self.q = nn.Linear(8, 8)
            self.k = nn.Linear(8, 8)
            self.fc1 = nn.Linear(8, 8)
            self.act = nn.ReLU()
            self.fc2 = nn.Linear(8, 8)
            self.fc3 = nn.Linear(8, 8)
            self.norm = nn.LayerNorm(8)
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
                layer = head() if name == "head" else nn.LayerNorm(8) if name == "norm" else nn.Linear(8, 8)
                setattr(self, name, layer)
            self.act = nn.ReLU()

    class Identities(Plain):
        """Put identities and idle dropouts between."""

        def __init__(self):
            super().__init__()
            self.before, self.between, self.after = nn.Identity(), nn.Identity(), nn.Dropout(0.0)

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
            self.q = nn.Linear(8, 8)
            self.k = nn.Sequential(nn.Linear(8, 8), nn.Sigmoid())
            body = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU())
            tail = nn.Sequential(nn.LayerNorm(8), head())
            for _ in range(depth):
                body, tail = nn.Sequential(body), nn.Sequential(nn.Sequential(tail))
            self.body, self.fc3, self.tail = body, nn.Linear(8, 8), tail

        def forward(self, x):
            x = self.body(self.q(x) * self.k(x))
            return self.tail(x + self.fc3(x))

    class Renamed(module):
        """Give the modules other names; the order of execution tells them apart."""

        def __init__(self, backwards=False):
            super().__init__()
            names = ["alpha", "beta", "gamma", "delta", "epsilon"]
            for name in reversed(names) if backwards else names:
                setattr(self, name, nn.Linear(8, 8))
            self.scale, self.classifier = nn.LayerNorm(8), head()

        def forward(self, inputs):
            hidden = self.alpha(inputs) * functional.sigmoid(self.beta(inputs))
            hidden = functional.relu(self.delta(functional.relu(self.gamma(hidden))))
            return self.classifier(self.scale(hidden + self.epsilon(hidden)))

    class Flat(module):
        """Keep everything in one list."""

        def __init__(self):
            super().__init__()
            layers = [nn.Linear(8, 8) for _ in range(5)]
            self.layers = (nn.ModuleList if framework == "torch" else nn.LayerList)([*layers, nn.LayerNorm(8), head()])

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
