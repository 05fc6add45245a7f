"""Hold a framework whose tensors are numpy arrays, and its adapter, which imports `padiff.adapter` and no more.

Its layers take and give arrays, and keep arrays as parameters. It computes forward only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from padiff.adapter import (
    Adapter,
    Hook,
    InputError,
    LiftError,
    Listener,
    Model,
    Module,
    Parameter,
    Part,
    Rule,
    Setting,
    Tensor,
    Unit,
    UnwatchableModel,
)

__version__ = "1.0"
DTYPES = ("bool", "int32", "int64", "float32", "float64")


class Layer:
    """What holds arrays and other layers as attributes, and computes in ``compute``."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        layer = super().__new__(cls)
        layer.hooks = []
        return layer

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        for before, _ in list(self.hooks):
            args, kwargs = before(args, kwargs) or (args, kwargs)
        output = self.compute(*args, **kwargs)
        for _, after in list(self.hooks):
            answer = after(args, kwargs, output)
            output = output if answer is None else answer
        return output

    def walk(self, path: str = "") -> Iterator[tuple[str, Any]]:
        """Yield every layer with every path under which it hangs."""
        yield path, self
        for name, child in vars(self).items():
            if isinstance(child, Layer):
                yield from child.walk(f"{path}.{name}" if path else name)


class Affine(Layer):
    """A product with a matrix (in, out), and a shift."""

    def __init__(self, n_in: int, n_out: int) -> None:
        self.matrix = np.random.normal(0, n_in**-0.5, (n_in, n_out)).astype("float32")
        self.shift = np.random.normal(0, 1, n_out).astype("float32")

    def compute(self, x: Any) -> Any:
        """Compute it."""
        return x @ self.matrix + self.shift


class Scale(Layer):
    """Normalise the last axis."""

    def __init__(self, features: int, small: float = 1e-5) -> None:
        self.gain, self.shift, self.small = np.ones(features, "float32"), np.zeros(features, "float32"), small

    def compute(self, x: Any) -> Any:
        """Compute it."""
        centred = x - x.mean(-1, keepdims=True)
        return centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + self.small) * self.gain + self.shift


def _fitting(array: Any, like: Any, name: str = "a tensor") -> Any:
    if array.shape != like.shape:
        msg = f"an array of shape {array.shape} does not fit {name} of shape {like.shape}"
        raise ValueError(msg)
    return array.astype(like.dtype)


class ArrayTensor(Tensor):
    """Wrap an array."""

    @property
    def dtype(self) -> str:
        """Return the dtype's name."""
        return self.native.dtype.name

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape."""
        return self.native.shape

    def numpy(self) -> Any:
        """Return a copy."""
        return self.native.copy()

    def swapped(self, array: Any) -> Any:
        """Return another array with these bits."""
        return _fitting(array, self.native)


class ArrayParameter(Parameter):
    """Wrap an array that a layer keeps."""

    @property
    def dtype(self) -> str:
        """Return the dtype's name."""
        return self.native.dtype.name

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape."""
        return self.native.shape

    def view(self) -> Any:
        """Return the values."""
        return self.native

    def assign(self, array: Any) -> None:
        """Overwrite the values."""
        self.native[...] = _fitting(array, self.native, repr(self.path))


class ArrayModule(Module):
    """Wrap a layer."""

    @property
    def forward(self) -> Any:
        """Return what users write."""
        return self.native.compute


class ArrayModel(Model):
    """Wrap a model."""

    def __init__(self, native: Any, adapter: Adapter) -> None:
        super().__init__(native, adapter)
        self._known: dict[Any, ArrayModule] = {}

    def modules(self) -> Mapping[str, Module]:
        """Return every layer once."""
        found: dict[str, Module] = {}
        for path, layer in self.native.walk():
            if layer not in self._known:
                self._known[layer] = ArrayModule(path, layer, self.adapter.rule(layer))
            found.setdefault(self._known[layer].path, self._known[layer])
        return found

    def parameters(self) -> Mapping[str, Parameter]:
        """Return every array that a layer keeps, once."""
        found: dict[int, tuple[Any, list[str]]] = {}
        for prefix, layer in self.native.walk():
            for name, value in vars(layer).items():
                if isinstance(value, np.ndarray):
                    found.setdefault(id(value), (value, []))[1].append(f"{prefix}.{name}" if prefix else name)
        return {
            names[0]: ArrayParameter(names[0], value, buffer=False, paths=tuple(names))
            for value, names in found.values()
        }

    def attach(self, listener: Listener) -> Hook:
        """Report every layer's calls."""
        hook = Hook()
        for module in self.modules().values():
            pair = (
                lambda args, kwargs, module=module: listener.enter(module, args, kwargs),
                lambda args, kwargs, output, module=module: listener.leave(module, args, kwargs, output),
            )
            module.native.hooks.append(pair)
            hook.add(lambda hooks=module.native.hooks, pair=pair: hooks.remove(pair))
        return hook

    def run(self, args: Any, kwargs: Any, differentiate: Any = None) -> Any:
        """Call the model."""
        return self.native(*args, **kwargs)

    @contextmanager
    def preserved(self) -> Iterator[None]:
        """Put back attributes."""
        before = {layer: dict(vars(layer)) for _, layer in self.native.walk()}
        try:
            yield
        finally:
            for layer, attributes in before.items():
                vars(layer).clear()
                vars(layer).update(attributes)

    @contextmanager
    def lifted(self, dtype: str) -> Iterator[None]:
        """Let layers keep wider arrays for a while: an array cannot change its own dtype."""
        if dtype != "float64":
            msg = f"there is no wider dtype {dtype} here\nHint: lift to float64"
            raise LiftError(msg)
        with self.preserved():
            wide: dict[int, Any] = {}
            for _, layer in self.native.walk():
                for name, value in vars(layer).items():
                    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
                        vars(layer)[name] = wide.setdefault(id(value), value.astype(dtype))
            yield


class ArraysAdapter(Adapter):
    """Know a framework whose tensors are numpy arrays."""

    name = "arrays"
    capabilities = frozenset({"float64"})
    machinery = ()
    library = (__file__,)
    table: Mapping[str, Rule] = {
        "padiff_toy_arrays.Affine": Rule(
            "linear", {"": Unit("linear", {"weight": Part("matrix", transpose=(1, 0)), "bias": Part("shift")})}
        ),
        "padiff_toy_arrays.Scale": Rule(
            "layer_norm",
            {"": Unit("layer_norm", {"weight": Part("gain"), "bias": Part("shift")})},
            {"eps": Setting("small", spelled="small")},
        ),
    }

    @property
    def own(self) -> tuple[str, ...]:
        """Return nothing: this file holds the framework too."""
        return ()

    def wrap(self, model: Any) -> Model:
        """Wrap a layer."""
        if not isinstance(model, Layer):
            msg = f"{type(model).__qualname__} is no Layer\nHint: pass the layer itself"
            raise UnwatchableModel(msg)
        return ArrayModel(model, self)

    def is_tensor(self, value: Any) -> bool:
        """Return whether the value is an array."""
        return isinstance(value, np.ndarray)

    def tensor(self, native: Any) -> Tensor:
        """Wrap an array."""
        return ArrayTensor(native)

    def from_numpy(self, array: Any, *, device: str = "cpu", differentiable: bool = False) -> Any:
        """Return a copy."""
        if array.dtype.name not in DTYPES:
            msg = f"there is no dtype {array.dtype.name} here\nHint: convert it to one of {', '.join(DTYPES)}"
            raise InputError(msg)
        return np.array(array, array.dtype.newbyteorder("="))

    def environment(self) -> Mapping[str, str]:
        """Return the versions."""
        return {"arrays": __version__, "numpy": np.__version__}
