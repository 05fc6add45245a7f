"""Write tiny models once for both frameworks, and ask reports about them."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

import padiff
from padiff.report import Finding, Report

__all__ = [
    "DIRECTIONS",
    "FRAMEWORKS",
    "Kit",
    "array",
    "assert_clean",
    "batch_norm_net",
    "blocks",
    "kit",
    "mlp",
    "network",
    "paths",
    "random_state",
    "snapshot",
    "source",
    "told",
]

FRAMEWORKS = ("torch", "paddle")
DIRECTIONS = (("torch", "paddle"), ("paddle", "torch"))


@dataclass(frozen=True)
class Kit:
    """Name what a tiny model needs of one framework."""

    name: str
    native: Any
    nn: Any
    functional: Any
    module: type

    def tensor(self, values: Any) -> Any:
        """Return a tensor with these values."""
        values = np.asarray(values)
        if self.name == "torch":
            return self.native.from_numpy(values.copy())
        return self.native.to_tensor(values)

    def parameter(self, values: Any) -> Any:
        """Return a trainable parameter with these values."""
        if self.name == "torch":
            return self.nn.Parameter(self.tensor(values))
        native = self.native.create_parameter(list(np.shape(values)), str(np.asarray(values).dtype))
        native.set_value(np.asarray(values))
        return native

    def linear(self, inputs: int, outputs: int, *, bias: bool = True) -> Any:
        """Return a linear layer."""
        if self.name == "torch":
            return self.nn.Linear(inputs, outputs, bias=bias)
        return self.nn.Linear(inputs, outputs, bias_attr=None if bias else False)

    def batch_norm(self, features: int, *, momentum: float = 0.1, eps: float = 1e-5) -> Any:
        """Return a one-dimensional batch norm; ``momentum`` in torch's convention on both sides."""
        if self.name == "torch":
            return self.nn.BatchNorm1d(features, momentum=momentum, eps=eps)
        return self.nn.BatchNorm1D(features, momentum=1 - momentum, epsilon=eps)

    def sequential(self, *layers: Any) -> Any:
        """Return a Sequential."""
        return self.nn.Sequential(*layers)

    def modules(self, layers: Any) -> Any:
        """Return a list of modules."""
        return (self.nn.ModuleList if self.name == "torch" else self.nn.LayerList)(list(layers))

    def concat(self, parts: Any, axis: int) -> Any:
        """Join tensors."""
        return self.native.cat(parts, axis) if self.name == "torch" else self.native.concat(parts, axis)

    def seed(self, seed: int) -> None:
        """Seed the framework's generator."""
        (self.native.manual_seed if self.name == "torch" else self.native.seed)(seed)

    def sgd(self, model: Any, lr: float = 0.1, *, weight_decay: float = 0.0, momentum: float = 0.0) -> Any:
        """Return stochastic gradient descent."""
        if self.name == "torch":
            return self.native.optim.SGD(model.parameters(), lr=lr, weight_decay=weight_decay, momentum=momentum)
        if momentum:
            return self.native.optimizer.Momentum(
                lr, momentum, parameters=model.parameters(), weight_decay=weight_decay
            )
        return self.native.optimizer.SGD(lr, parameters=model.parameters(), weight_decay=weight_decay)

    def adam(self, model: Any, lr: float = 1e-3, *, betas: tuple[float, float] = (0.9, 0.999)) -> Any:
        """Return Adam."""
        if self.name == "torch":
            return self.native.optim.Adam(model.parameters(), lr=lr, betas=betas)
        return self.native.optimizer.Adam(lr, *betas, parameters=model.parameters())

    def adamw(self, model: Any, lr: float = 1e-3, *, weight_decay: float = 0.01) -> Any:
        """Return AdamW."""
        if self.name == "torch":
            return self.native.optim.AdamW(model.parameters(), lr=lr, weight_decay=weight_decay)
        return self.native.optimizer.AdamW(lr, parameters=model.parameters(), weight_decay=weight_decay)


def kit(name: str) -> Kit:
    """Return the kit of ``torch`` or ``paddle``."""
    native = import_module(name)
    module = native.nn.Module if name == "torch" else native.nn.Layer
    return Kit(name, native, native.nn, native.nn.functional, module)


def network(kit: Kit, forward: Callable[..., Any], *, name: str = "Network", **layers: Any) -> Any:
    """Return a model of a class of its own, with these attributes and this forward (which takes ``self``)."""

    def __init__(self: Any) -> None:
        kit.module.__init__(self)
        for attribute, layer in layers.items():
            setattr(self, attribute, layer)

    return type(name, (kit.module,), {"__init__": __init__, "forward": forward})()


def _same(y: Any) -> Any:
    return y


def mlp(kit: Kit, *, hidden: int = 16, out: int = 4, bias: bool = True, after: Any = _same) -> Any:
    """Return fc1, relu, fc2 on 8 features; ``after`` is the model's own code on the result."""

    def forward(self: Any, x: Any) -> Any:
        return after(self.fc2(self.act(self.fc1(x))))

    return network(
        kit,
        forward,
        name="Mlp",
        fc1=kit.linear(8, hidden),
        act=kit.nn.ReLU(),
        fc2=kit.linear(hidden, out, bias=bias),
    )


def blocks(kit: Kit, *, depth: int = 4, factors: Any = (), norm: Any = None) -> Any:
    """Return ``depth`` residual blocks of norm, fc, relu on 8 features; ``factors`` scales branches."""
    scales = dict(factors)

    def block(index: int) -> Any:
        scale = scales.get(index, 1.0)

        def forward(self: Any, x: Any) -> Any:
            return x + self.act(self.fc(self.norm(x))) * scale

        layer_norm = (norm or {}).get(index) or kit.nn.LayerNorm(8)
        return network(kit, forward, name="Block", norm=layer_norm, fc=kit.linear(8, 8), act=kit.nn.ReLU())

    def forward(self: Any, x: Any) -> Any:
        for layer in self.blocks:
            x = layer(x)
        return self.head(x)

    layers = kit.modules(block(index) for index in range(depth))
    return network(kit, forward, name="Blocks", blocks=layers, head=kit.linear(8, 3))


def batch_norm_net(kit: Kit, *, momentum: float = 0.1, eps: float = 1e-5) -> Any:
    """Return fc1, batch norm, fc2 on 8 features."""

    def forward(self: Any, x: Any) -> Any:
        return self.fc2(self.norm(self.fc1(x)))

    return network(
        kit,
        forward,
        name="BatchNormNet",
        fc1=kit.linear(8, 16),
        norm=kit.batch_norm(16, momentum=momentum, eps=eps),
        fc2=kit.linear(16, 4),
    )


def array(*shape: int, seed: int = 0) -> np.ndarray:
    """Return normal float32 numbers, four rows of eight unless told."""
    return np.random.default_rng(seed).normal(size=shape or (4, 8)).astype(np.float32)


# Reports ----------------------------------------------------------------------------------------------------


def told(report: Report) -> str:
    """Return what a report found, for a failed assertion."""
    lines = [
        f"  {'source' if f.source else 'finding'} {f.phase} {f.verdict} step {f.step} {f.reference.path!r} | "
        f"{f.candidate.path!r} {f.what!r} between={f.between} cause={f.cause!r} at {f.candidate.location}"
        for f in report.findings
    ]
    return "\n".join(["", *lines, f"  notes: {[note.text for note in report.notes]}"])


def paths(report: Report, phase: str | None = None) -> list[str | None]:
    """Return the candidate paths of the sources, of one phase or of all."""
    return [found.candidate.path for found in report.sources if phase in (None, found.phase)]


def source(report: Report, phase: str, path: str, *, alone: bool = True) -> Finding:
    """Return the source at a place; with ``alone`` there must be no source elsewhere."""
    assert not report.aligned, told(report)
    here = [f for f in report.sources if f.phase == phase and path in (f.candidate.path, f.reference.path)]
    assert here, f"{phase} at {path!r} is not a source{told(report)}"
    if alone:
        assert {f.candidate.path for f in report.sources} == {here[0].candidate.path}, told(report)
    return here[0]


def assert_clean(report: padiff.Report) -> None:
    """Assert that nothing parts and that all parameters found their counterpart."""
    assert report.aligned, told(report)
    assert not report.sources, told(report)
    if report.transfer is not None:
        assert not report.transfer.unmatched_reference, report.transfer
        assert not report.transfer.unmatched_candidate, report.transfer
        assert not report.transfer.unverified, report.transfer


# State ------------------------------------------------------------------------------------------------------


def _bits(kit: Kit, tensor: Any) -> str | None:
    if tensor is None:
        return None
    values = tensor.detach().cpu().numpy() if kit.name == "torch" else tensor.numpy()
    digest = hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()
    return f"{values.dtype}{values.shape} {digest}"


def _plain(module: Any) -> dict[str, int]:
    """Return the identities of a module's plain attributes."""
    return {name: id(value) for name, value in vars(module).items() if not name.startswith("_") and name != "training"}


_HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_pre_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_backward_hooks",
    "_backward_pre_hooks",
    "_forward_post_hooks",
    "_forward_pre_hooks_with_kwargs_flag",
    "_forward_post_hooks_with_kwargs_flag",
    "_forward_post_hooks_always_called",
)


def snapshot(kit: Kit, model: Any, *, values: bool = True) -> dict[str, Any]:
    """Return everything that a diff must put back; without ``values`` no bits of parameters and buffers."""
    state: dict[str, Any] = {}
    tree = model.named_modules() if kit.name == "torch" else model.named_sublayers(include_self=True)
    for path, module in tree:
        state[path, "training"] = module.training
        state[path, "class"] = type(module)
        state[path, "attributes"] = _plain(module)
        for hooks in _HOOKS:
            state[path, hooks] = list(getattr(module, hooks, {}))
        for table in (module._parameters, module._buffers):
            for name, tensor in table.items():
                key = f"{path}.{name}"
                state[key, "object"] = id(tensor)
                if values:
                    state[key, "bits"] = _bits(kit, tensor)
                if tensor is None or (kit.name == "paddle" and not tensor._is_initialized()):
                    continue
                state[key, "requires_grad"] = tensor.requires_grad if kit.name == "torch" else not tensor.stop_gradient
                gradient = tensor.grad if tensor.is_leaf else None
                state[key, "gradient"] = _bits(kit, gradient)
                if kit.name == "torch":
                    state[key, "gradient object"] = None if gradient is None else id(gradient)
                    state[key, "hooks"] = list(tensor._backward_hooks or {})
    return state


def random_state() -> dict[str, Any]:
    """Return the state of every generator that a model may draw from."""
    import paddle
    import torch

    words = [word for state in paddle.get_rng_state() for word in str(state).split()]
    return {
        "torch": torch.get_rng_state().numpy().tobytes(),
        # The text of a state holds the address of its engine, which is no part of it.
        "paddle": [word for word in words if word[:2] != "0x"],
        "numpy": [str(part) if np.isscalar(part) else part.tobytes() for part in np.random.get_state()],
        "python": random.getstate(),
    }
