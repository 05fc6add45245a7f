"""Write tiny models once for all frameworks, and ask reports about them."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from typing import Any

import numpy as np

import padiff
from padiff.report import Finding, Report

from .dialects import DIRECTIONS, FRAMEWORKS, kit
from .kits import Kit

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


def network(kit: Kit, forward: Callable[..., Any], *, name: str = "Network", **layers: Any) -> Any:
    """Return a model of a class of its own, with these attributes and this forward (which takes ``self``)."""

    def __init__(self: Any) -> None:
        kit.module.__init__(self)
        for attribute, layer in layers.items():
            setattr(self, attribute, layer)

    # MindSpore calls it construct.
    return type(name, (kit.module,), {"__init__": __init__, "forward": forward, "construct": forward})()


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

        layer_norm = (norm or {}).get(index) or kit.layer_norm(8)
        return network(kit, forward, name="Block", norm=layer_norm, fc=kit.linear(8, 8), act=kit.nn.ReLU())

    def forward(self: Any, x: Any) -> Any:
        for layer in self.blocks:
            x = layer(x)
        return self.head(x)

    layers = kit.modules(block(index) for index in range(depth))
    return network(kit, forward, name="Blocks", blocks=layers, head=kit.linear(8, 3))


def batch_norm_net(kit: Kit, *, momentum: float = 0.1, eps: float = 1e-5) -> Any:
    """Return fc1, batch norm, fc2 on 8 features, in training."""

    def forward(self: Any, x: Any) -> Any:
        return self.fc2(self.norm(self.fc1(x)))

    net = network(
        kit,
        forward,
        name="BatchNormNet",
        fc1=kit.linear(8, 16),
        norm=kit.batch_norm(16, momentum=momentum, eps=eps),
        fc2=kit.linear(16, 4),
    )
    kit.train(net)
    return net


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
    values = kit.numpy(tensor)
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
    "_lazy_forward_pre_hook",
    "_lazy_forward_hook",
    "_lazy_backward_pre_hook",
    "_lazy_backward_hook",
    "_lazy_forward_pre_hook_with_kwargs",
    "_lazy_forward_hook_with_kwargs",
    "_lazy_forward_hook_always_called",
)


def _tree(kit: Kit, model: Any) -> list[tuple[str, Any]]:
    if kit.name == "mindspore":
        return list(model.cells_and_names())
    return list(model.named_modules() if kit.name == "torch" else model.named_sublayers(include_self=True))


def _tables(kit: Kit, module: Any) -> list[Any]:
    return [module._params if kit.name == "mindspore" else module._parameters, module._buffers or {}]


def snapshot(kit: Kit, model: Any, *, values: bool = True) -> dict[str, Any]:
    """Return everything that a diff must put back; without ``values`` no bits of parameters and buffers."""
    state: dict[str, Any] = {}
    for path, module in _tree(kit, model):
        state[path, "training"] = module.training
        state[path, "class"] = type(module)
        state[path, "attributes"] = _plain(module)
        for hooks in _HOOKS:
            state[path, hooks] = list(getattr(module, hooks, None) or {})
        for table in _tables(kit, module):
            for name, tensor in table.items():
                state.update(_tensor_state(kit, f"{path}.{name}", tensor, values=values))
    return state


def _tensor_state(kit: Kit, key: str, tensor: Any, *, values: bool) -> dict[tuple[str, str], Any]:
    state: dict[tuple[str, str], Any] = {(key, "object"): id(tensor)}
    if values:
        state[key, "bits"] = _bits(kit, tensor)
    if tensor is None or (kit.name == "paddle" and not tensor._is_initialized()):
        return state
    state[key, "frozen"] = kit.frozen(tensor)
    if kit.name == "mindspore":
        state[key, "name"] = tensor.name
        state[key, "hooks"] = len(tensor.hooks())
        return state
    gradient = tensor.grad if tensor.is_leaf else None
    state[key, "gradient"] = _bits(kit, gradient)
    if kit.name == "torch":
        state[key, "gradient object"] = None if gradient is None else id(gradient)
        state[key, "hooks"] = list(tensor._backward_hooks or {})
    return state


def random_state() -> dict[str, Any]:
    """Return the state of every generator that a model may draw from."""
    import mindspore
    import paddle
    import torch

    words = [word for state in paddle.get_rng_state() for word in str(state).split()]
    return {
        "torch": torch.get_rng_state().numpy().tobytes(),
        # The text of a state holds the address of its engine, which is no part of it.
        "paddle": [word for word in words if word[:2] != "0x"],
        "mindspore": (mindspore.get_seed(), mindspore.get_rng_state().asnumpy().tobytes()),
        "numpy": [str(part) if np.isscalar(part) else part.tobytes() for part in np.random.get_state()],
        "python": random.getstate(),
    }
