"""Handle the functions that a model's own code calls: disturb what they give, or note in which types they compute."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from padiff.adapter import Adapter, Hook, Listener, Model, Tensor, handed_on
from padiff.adapter.dtypes import wider
from padiff.errors import NotOffered
from padiff.kinds import computes, is_in_place, short_name
from padiff.numerics import Array, epsilon_of, in_reals, is_whole, numpy_dtype
from padiff.pytree import leaves, map_leaves
from padiff.recording import OwnCode

_OF_KERNELS = 8
"""By how many epsilons of float32 a kernel may be off: MindSpore's log_softmax is by 5.6 (root mean square)."""


class OwnFunctions(OwnCode):
    """What is told of each function that computes, and that the model's own code calls."""

    def __init__(self, listener: Listener, adapter: Adapter) -> None:
        super().__init__(listener)
        self._adapter = adapter

    @contextmanager
    def within(self, model: Model) -> Iterator[None]:
        """Intercept a model's functions within; raise `NotOffered` where its framework's cannot be."""
        if "operations" not in self._adapter.capabilities:
            raise NotOffered(self._adapter.name)
        with model.intercept_operations(self._intercept):
            yield

    def _intercept(self, function: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not (self.runs and computes(name)):
            return handed_on(function, args, kwargs)
        with self.aside():
            args, kwargs = (args, kwargs) if is_in_place(name) else self._given((args, kwargs))
            return self._made(name, args, kwargs, handed_on(function, args, kwargs))

    def _given(self, arguments: tuple[tuple[Any, ...], dict[str, Any]]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return what a function is to be called with."""
        return arguments

    @abstractmethod
    def _made(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        """Return what the code is to go on with where a function gave an output."""


class Disturbing(OwnFunctions):
    """What disturbs each floating value by some machine epsilons, which shows how much of a result is rounding."""

    def __init__(self, listener: Listener, adapter: Adapter, epsilons: float, draw: int = 0) -> None:
        super().__init__(listener, adapter)
        self._epsilons = epsilons
        self._noise = np.random.default_rng(draw)

    def _made(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        tensor = self._adapter.tensor(output) if self._adapter.is_tensor(output) else None
        by = 0.0 if tensor is None or is_in_place(name) else self._epsilon(tensor, (args, kwargs)) * self._epsilons
        return output if tensor is None or not by else self._moved(tensor, by)

    def _epsilon(self, made: Tensor, given: Any) -> float:
        """Return that of the type in which a value was made of others; 0 where it is to be left."""
        return epsilon_of(made.dtype)

    def _moved(self, tensor: Tensor, by: float, shared: float = 0.0) -> Any:
        """Return a tensor whose values are off by up to so much each, beside what all ``shared`` are."""
        values = tensor.numpy()
        wide = np.result_type(values, np.float64)
        return tensor.swapped(values.astype(wide) * (1.0 + shared + self._noise.uniform(-by, by, values.shape)))


class DisturbingKernels(Disturbing):
    """What disturbs what functions give that compute in float32 in a float64 model, and the gradient that they get.

    All of it is off by one factor, too, as sums may be.
    """

    def __init__(self, listener: Listener, adapter: Adapter, draw: int, hooks: Hook) -> None:
        super().__init__(listener, adapter, _OF_KERNELS, draw)
        self._hooks = hooks

    def _given(self, arguments: tuple[tuple[Any, ...], dict[str, Any]]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Disturb an honest float32, whatever the model is lifted to: right to half an epsilon, whoever made it."""

        def moved(_: str, native: Any) -> Any:
            tensor = self._adapter.tensor(native)
            eps = epsilon_of(tensor.dtype)
            honest = eps == epsilon_of("float32") and not tensor.differentiable and not is_whole(tensor.view())
            return super(DisturbingKernels, self)._moved(tensor, eps / 2) if honest else native

        found: tuple[tuple[Any, ...], dict[str, Any]] = map_leaves(arguments, self._adapter.is_tensor, moved)
        return found

    def _epsilon(self, made: Tensor, given: Any) -> float:
        """Return float32's epsilon where a function gives what that holds in a wider type, of what it does not hold.

        Nor does a type that is narrower still hold it, as it holds zeros and ones, nor is it whole numbers: these are
        exact. A mask of them is multiplied by a number so large that what is off by an epsilon would be all there is.
        """
        eps, own, values = epsilon_of("float32"), epsilon_of(made.dtype), made.view()
        if not 0.0 < own < eps or is_whole(values):
            return 0.0
        if not _is_held(values, "float32") or _is_held(values, "bfloat16"):
            return 0.0
        tensors = (self._adapter.tensor(native) for _, native in leaves(given, self._adapter.is_tensor))
        floating = [one.view() for one in tensors if epsilon_of(one.dtype)]
        if any(np.array_equal(one, values) for one in floating):
            return 0.0  # handed on, or cast to the type of another tensor: no kernel computed it
        return eps if any(not _is_held(one, "float32") for one in floating) else 0.0

    def _moved(self, tensor: Tensor, by: float, shared: float = 0.0) -> Any:
        def moved(one: Tensor) -> Any:
            return super(DisturbingKernels, self)._moved(one, by, self._noise.uniform(-by, by))

        made = self._adapter.tensor(moved(tensor))
        if made.differentiable:
            self._hooks.add(made.on_gradient(moved).close)
        return made.native


class Uncasting(OwnFunctions):
    """What leaves out casts to narrower floating types: code goes on in the type that its model was lifted to.

    So it does with what it makes of whole numbers, truths or nothing in a narrower type: a mask as numbers. These types
    are those of a machine epsilon up to ``most``. What is left without them ``kernels`` disturbs.
    """

    def __init__(
        self, listener: Listener, adapter: Adapter, dtype: str | None, most: float, kernels: OwnFunctions | None
    ) -> None:
        super().__init__(listener, adapter)
        self._dtype, self._most, self._kernels = dtype, most, kernels

    def _given(self, arguments: tuple[tuple[Any, ...], dict[str, Any]]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return arguments if self._kernels is None else self._kernels._given(arguments)

    def _made(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        left = self._uncast(name, args, kwargs, output)
        return left if self._kernels is None else self._kernels._made(name, args, kwargs, left)

    def _uncast(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        if not self._adapter.is_tensor(output):
            return output
        made = self._adapter.tensor(output)
        every = (self._adapter.tensor(native) for _, native in leaves((args, kwargs), self._adapter.is_tensor))
        floats = [given for given in every if epsilon_of(given.dtype)]
        for given in floats:
            if 0.0 < epsilon_of(given.dtype) < epsilon_of(made.dtype) <= self._most and given.shape == made.shape:
                values = given.numpy()
                if np.array_equal(values.astype(numpy_dtype(made.dtype)), made.view(), equal_nan=True):
                    return given.swapped(values)  # not itself: it may be changed in place
        if floats or self._dtype is None or is_in_place(name) or epsilon_of(made.dtype) > self._most:
            return output
        wide = wider(made.dtype, self._dtype)
        if wide is None:
            return output
        return self._adapter.from_numpy(made.numpy().astype(numpy_dtype(wide)), device=made.device)


class Typing(OwnFunctions):
    """What notes the floating types in which the functions compute that the outermost call's own code calls."""

    def __init__(self, listener: Listener, adapter: Adapter) -> None:
        super().__init__(listener, adapter)
        self.found: dict[str, list[str]] = {}

    def _made(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        given, made = self._floating((args, kwargs)), self._floating(output)
        # A cast gives another type than it is given: it computes in neither.
        if made and given == made and len(self.opened) == 1:
            names = self.found.setdefault(made.pop(), [])
            if short_name(name) not in names:
                names.append(short_name(name))
        return output

    def _floating(self, value: Any) -> set[str]:
        types = (self._adapter.tensor(native).dtype for _, native in leaves(value, self._adapter.is_tensor))
        return {dtype for dtype in types if epsilon_of(dtype)}


def _is_held(values: Array, dtype: str) -> bool:
    """Return whether a type holds all values as they are."""
    with np.errstate(over="ignore", invalid="ignore"):
        reals = in_reals(values)
        return np.array_equal(reals, reals.astype(numpy_dtype(dtype)).astype(np.float64), equal_nan=True)
