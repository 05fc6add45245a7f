"""Put a model back as it was: what a run changes, and what a wider dtype replaces."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import attrs
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from padiff.adapter import LiftError, map_leaves
from padiff_flax import graph
from padiff_flax.tape import Taped, value_of
from padiff_flax.tensor import wide_enough


@contextmanager
def attributes_kept(root: Any) -> Iterator[None]:
    """Put back every attribute of every NNX object: modes, caches, what was sown."""
    before = [(node, dict(vars(node))) for _, node in graph.nodes(root)]
    try:
        yield
    finally:
        for node, attributes in before:
            vars(node).clear()
            vars(node).update(attributes)


@contextmanager
def variables_kept(root: Any, *, but: type | tuple[type, ...] = ()) -> Iterator[None]:
    """Put back the very values of every variable that is not of the class ``but``."""
    before = [(one, one.get_raw_value()) for _, one in graph.variables(root) if not isinstance(one, but)]
    try:
        yield
    finally:
        for variable, value in before:
            variable.set_raw_value(value)


def off_the_tape(root: Any) -> None:
    """Let every variable and attribute hold plain arrays, with the values that they have on the tape."""

    def is_taped(value: Any) -> bool:
        return isinstance(value, Taped)

    def plain(_: str, value: Any) -> Any:
        return value_of(value)

    for _, variable in graph.variables(root):
        old = variable.get_raw_value()
        new = map_leaves(old, is_taped, plain)
        if new is not old:
            variable.set_raw_value(new)
    for _, node in graph.nodes(root):
        for name, value in vars(node).items():
            if not isinstance(value, nnx.Pytree | nnx.Variable) and not name.startswith("_pytree__"):
                vars(node)[name] = map_leaves(value, is_taped, plain)


@attrs.define
class Seeding:
    """A seed, and how far each generator of each model got since it was set."""

    seed: int
    states: dict[int, tuple[Any, Any]] = attrs.field(factory=dict)
    """Id of a generator's variable -> the variable, and its value after the last run."""

    @contextmanager
    def applied(self, root: Any) -> Iterator[None]:
        """Let the generators below ``root`` draw what the seed gives, and put their own states back after.

        NNX keeps generators in the model, or takes them as arguments: there is no global one to seed.
        """
        before = [(one, one.get_raw_value()) for _, one in graph.variables(root) if isinstance(one, nnx.RngState)]
        for variable, value in before:
            known = self.states.get(id(variable))
            variable.set_raw_value(self._first(variable, value) if known is None else known[1])
        try:
            yield
        finally:
            for variable, value in before:
                self.states[id(variable)] = variable, variable.get_raw_value()
                variable.set_raw_value(value)

    def _first(self, variable: Any, value: Any) -> Any:
        if not isinstance(variable, nnx.RngKey):
            return jnp.zeros_like(value)
        keys = jax.vmap(lambda key: jax.random.fold_in(key, self.seed % 2**32))(value.reshape(-1))
        return keys.reshape(value.shape)


@contextmanager
def lifted(root: Any, dtype: str) -> Iterator[None]:
    """Hold floating variables and arrays in at least ``dtype``, let modules compute in it; put all back after."""
    target = np.dtype(dtype)
    if not jnp.issubdtype(target, jnp.floating):
        msg = f"{dtype} is no floating dtype.\nHint: lift to float64."
        raise LiftError(msg)

    def is_narrow(value: Any) -> bool:
        return isinstance(value, jax.Array) and _narrow(value.dtype, target)

    def wide(_: str, value: Any) -> Any:
        return value.astype(target)

    with wide_enough(target), attributes_kept(root), variables_kept(root):
        for _, variable in graph.variables(root):
            if not isinstance(variable, nnx.RngState):
                variable.set_raw_value(map_leaves(variable.get_raw_value(), is_narrow, wide))
        for _, node in graph.nodes(root):
            for name, value in vars(node).items():
                if isinstance(value, nnx.Pytree | nnx.Variable) or name.startswith("_pytree__"):
                    continue
                if name.endswith("dtype") and _names_narrow(value, target):
                    vars(node)[name] = target
                else:
                    vars(node)[name] = map_leaves(value, is_narrow, wide)
        yield


def _narrow(dtype: Any, target: Any) -> bool:
    return jnp.issubdtype(dtype, jnp.floating) and np.dtype(dtype).itemsize < target.itemsize


def _names_narrow(value: Any, target: Any) -> bool:
    """Return whether a value names a dtype, as modules' ``dtype`` and ``param_dtype`` do, that is too narrow."""
    if value is None or (callable(value) and not hasattr(value, "dtype") and not isinstance(value, type)):
        return False
    try:
        return _narrow(jnp.dtype(value), target)
    except TypeError:
        return False
