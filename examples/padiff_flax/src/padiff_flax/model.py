"""Wrap Flax NNX modules: their tree, their parameters, and how they run and come back as they were."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
from flax import nnx

from padiff.adapter import Array, Hook, Listener, Module, TensorParameter, TreeModel
from padiff_flax import graph, optim, state, watch
from padiff_flax.tape import Taped, backward, leaf, taping
from padiff_flax.tensor import FlaxTensor, device_name, from_array, is_array, is_inexact

if TYPE_CHECKING:
    from padiff_flax.adapter import FlaxAdapter

# Where modules say which mode they are in, and whether True means training.
_MODES = {"deterministic": False, "use_running_average": False, "training": True, "train": True}


class FlaxModule(Module):
    """An `nnx.Module`, wrapped."""

    @property
    def training(self) -> bool:
        """Return whether it is in training mode; without a mode of its own, whether a module below it is.

        NNX keeps the mode where it matters only: in dropouts and batch norms.
        """
        own = [vars(self.native)[name] is means for name, means in _MODES.items() if name in vars(self.native)]
        if own:
            return any(own)
        modules = [one for _, one in graph.modules(self.native)]
        return any(vars(one).get(name) is means for one in modules for name, means in _MODES.items())

    @property
    def forward(self) -> Callable[..., Any]:
        """Return the bound ``__call__``; of a container, which has none, a function that says so."""
        forward: Callable[..., Any] = getattr(self.native, "__call__", self._uncallable)  # noqa: B004
        return forward

    def _uncallable(self, *args: Any, **kwargs: Any) -> Any:
        msg = f"{self.class_name} has no __call__"
        raise TypeError(msg)


class FlaxParameter(TensorParameter):
    """An `nnx.Variable`; its gradient is kept with the model, as JAX has no place for it."""

    tensor = FlaxTensor

    def __init__(self, path: str, native: Any, gradients: dict[int, Any], paths: tuple[str, ...]) -> None:
        super().__init__(path, native, buffer=not isinstance(native, nnx.Param), paths=paths)
        self._gradients = gradients

    def ready(self) -> Any:
        """Return the array that the variable holds."""
        return self.native.get_raw_value()

    @property
    def dtype(self) -> str:
        """Return the dtype's numpy or ml_dtypes name."""
        return self.tensor(self.ready()).dtype

    @property
    def trainable(self) -> bool:
        """Return whether it gets a gradient."""
        return not self.buffer and is_inexact(self.ready())

    def assign(self, array: Array) -> None:
        """Let the variable hold these values; raises ``ValueError`` where the shapes differ."""
        self.native.set_raw_value(self._like(array))

    def gradient(self) -> Array | None:
        """Return the gradient of the last run, or what `set_gradient` left."""
        found = self._gradients.get(id(self.native))
        return None if found is None else np.asarray(found)

    def set_gradient(self, array: Array | None) -> None:
        """Replace the gradient; raises ``ValueError`` where the shapes differ."""
        if array is None:
            self._gradients.pop(id(self.native), None)
        else:
            self._gradients[id(self.native)] = self._like(array)

    def _like(self, array: Array) -> Any:
        return from_array(self.fitting(array), device_name(self.ready()))


class FlaxModel(TreeModel):
    """An `nnx.Module` as a model; raises `UnwatchableModel` where its calls could not be seen."""

    adapter: FlaxAdapter
    module = FlaxModule
    parameter = FlaxParameter

    def __init__(self, native: Any, adapter: FlaxAdapter) -> None:
        self.gradients: dict[int, Any] = {}
        """Id of a variable -> the gradient of the last run."""
        super().__init__(native, adapter)

    def require_watchable(self) -> None:
        """Raise `UnwatchableModel` where calls could not be seen or values not be seen."""
        watch.require_watchable(self.native)

    def walk(self) -> Iterator[tuple[str, Any]]:
        """Yield every module, in the order of assignment."""
        return graph.modules(self.native)

    def held(self) -> Iterator[tuple[str, Any, bool]]:
        """Yield every variable that holds an array; those that generators keep are none of the model's."""
        for path, variable in graph.variables(self.native):
            if is_array(variable.get_raw_value()) and not isinstance(variable, nnx.RngState):
                yield path, variable, not isinstance(variable, nnx.Param)

    def wrap_parameter(self, native: Any, buffer: bool, paths: tuple[str, ...]) -> FlaxParameter:
        """Return the wrapper of a variable, which finds its gradient here."""
        return FlaxParameter(paths[0], native, self.gradients, paths)

    @property
    def device(self) -> str:
        """Return where the variables lie."""
        places = {device_name(parameter.ready()) for parameter in self.parameters().values()}
        return ",".join(sorted(places)) or "cpu"

    def attach(self, listener: Listener) -> Hook:
        """Report every module's calls; those under a transformation of JAX are part of the call around it."""
        self.require_watchable()
        return watch.attach(self.modules(), listener)

    def run(
        self,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        differentiate: Callable[[Any], list[tuple[Any, Any | None]]] | None = None,
    ) -> Any:
        """Call the model eagerly with its parameters on the tape, and run backward along it."""
        self.gradients.clear()
        seeding = self.adapter.seeding
        drawn = nullcontext() if seeding is None else seeding.applied([self.native, args, dict(kwargs)])
        with drawn, self._on_tape() as leaves:
            with taping():
                output = self.native(*args, **kwargs)
                starts = [] if differentiate is None else differentiate(output)
            gradients = backward(starts, leaves.values())
        found = zip(leaves, gradients, strict=True)
        self.gradients.update({key: gradient for key, gradient in found if gradient is not None})
        return output

    @contextmanager
    def _on_tape(self) -> Iterator[dict[int, Taped]]:
        """Put every trainable parameter on the tape within; give the leaves by the ids of the variables."""
        leaves: dict[int, Taped] = {}
        with ExitStack() as stack:
            stack.callback(state.off_the_tape, self.native)
            for parameter in self.parameters().values():
                if parameter.trainable:
                    variable = parameter.native
                    leaves[id(variable)] = leaf(variable.get_raw_value())
                    variable.set_raw_value(leaves[id(variable)])
            yield leaves

    @contextmanager
    def preserved(self) -> Iterator[None]:
        """Put back gradients, attributes, and the values of all variables that are no parameters."""
        with (
            self._gradients_kept(),
            state.attributes_kept(self.native),
            state.variables_kept(self.native, but=nnx.Param),
        ):
            yield

    def evaluate(self) -> None:
        """Put every module that has a mode into evaluation mode."""
        for module in self.modules().values():
            for name, training in _MODES.items():
                if vars(module.native).get(name) is training:
                    setattr(module.native, name, not training)

    @contextmanager
    def lifted(self, dtype: str) -> Iterator[None]:
        """Hold floating variables and array attributes in ``dtype``, with 64 bits allowed."""
        with self._gradients_kept(), state.lifted(self.native, dtype):
            yield

    @contextmanager
    def _gradients_kept(self) -> Iterator[None]:
        before = dict(self.gradients)
        try:
            yield
        finally:
            self.gradients.clear()
            self.gradients.update(before)

    def step(self, optimizer: Any) -> None:
        """Let an `nnx.Optimizer` take one step with the gradients that are kept here, and drop them."""
        optim.step_of(self.native, optimizer, self.gradients)
        self.gradients.clear()
