"""Let NNX optimizers step, and read what can be read of their hyper-parameters."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from padiff.adapter import optimizers
from padiff_flax import graph
from padiff_flax.state import variables_kept

# optax's names -> the common ones.
_NAMES = {
    "learning_rate": "lr",
    "b1": "beta1",
    "b2": "beta2",
    "eps": "eps",
    "weight_decay": "weight_decay",
    "momentum": "momentum",
    "nesterov": "nesterov",
}


def is_optimizer(value: Any) -> bool:
    """Return whether the value is an `nnx.Optimizer`."""
    return isinstance(value, nnx.Optimizer)


def step(optimizer: Any) -> None:
    """Call what is no optimizer; one of NNX's is told the model, by `step_of`."""
    optimizer()


def step_of(model: Any, optimizer: Any, gradients: Mapping[int, Any]) -> None:
    """Take one step with gradients that are kept by the ids of variables; a plain callable is simply called.

    What got no gradient is given zeros, as ``jax.grad`` gives.
    """
    if not is_optimizer(optimizer):
        step(optimizer)
        return
    with variables_kept(model):
        for _, variable in graph.variables(model):
            value = variable.get_raw_value()
            if isinstance(variable, nnx.Param):
                variable.set_raw_value(gradients.get(id(variable), jnp.zeros_like(value)))
        grads = jax.tree.map(lambda value: value, nnx.state(model, optimizer.wrt))
    if isinstance(optimizer, nnx.ModelAndOptimizer):
        optimizer.update(grads)
    else:
        optimizer.update(model, grads)


def settings_of(optimizer: Any) -> dict[str, Any]:
    """Return the hyper-parameters that can be read: those of an optimizer under ``optax.inject_hyperparams``.

    Others are held in nested closures, under names of their implementation.
    """
    if not is_optimizer(optimizer):
        return {}
    closure = inspect.getclosurevars(optimizer.tx.update).nonlocals
    if "inner_factory" not in closure:
        return {}
    held = jax.tree.map(optimizers.plain, nnx.as_pure(optimizer.opt_state).hyperparams)
    given = {**closure.get("other_hps", {}), **held}
    named = {_NAMES[name]: value for name, value in given.items() if name in _NAMES and value is not None}
    return {"class": closure["inner_factory"].__name__, **named}
