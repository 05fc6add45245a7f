"""What most frameworks' models have in common: a tree of modules that hold tensors."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar

from padiff.adapter._adapter import Adapter
from padiff.adapter._memory import Extent
from padiff.adapter._model import Model
from padiff.adapter._module import Module, Parameter, qualified_name
from padiff.adapter._reduction import Reducer, Reduction
from padiff.adapter._tensor import Tensor
from padiff.errors import InputError, UnwatchableModel
from padiff.numerics import Array

Children = Callable[[Any], Iterable[tuple[str, Any]]]
Trouble = tuple[str, str]
"""What keeps something from being compared, as the end of a sentence, and what to do about it."""


def walk(root: Any, children: Children) -> Iterator[tuple[str, Any]]:
    """Yield every object with every path under which it hangs, parents first; a cycle is gone round once."""
    todo: list[tuple[str, Any, frozenset[int]]] = [("", root, frozenset())]
    while todo:
        path, native, above = todo.pop()
        yield path, native
        found = list(children(native))
        if found:
            within = above | {id(native)}
            prefix = f"{path}." if path else ""
            for name, child in reversed(found):
                if child is not None and id(child) not in within:
                    todo.append((prefix + name, child, within))


class TensorParameter(Parameter):
    """A parameter or buffer that is one of its framework's tensors; ``tensor`` is the class that wraps these."""

    tensor: ClassVar[type[Tensor]]
    grad: ClassVar[str] = "grad"
    """The attribute of a native parameter that holds its gradient."""

    @property
    def dtype(self) -> str:
        """Return the dtype's numpy or ml_dtypes name."""
        return self.tensor(self.native).dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the native shape."""
        return self.tensor(self.ready()).shape

    @property
    def trainable(self) -> bool:
        """Return whether it gets a gradient."""
        return not self.buffer and self.tensor(self.native).differentiable

    def view(self) -> Array:
        """Return the values in native layout, without a copy on the CPU."""
        return self.tensor(self.ready()).view()

    def extent(self) -> Extent | None:
        """Return the addresses of its values: of what `view` gives as a copy, too."""
        return self.tensor(self.ready()).extent()

    def reduce(self, reducer: Reducer, reduction: Reduction, *, steady: bool = False) -> bool:
        """Let few numbers be computed where the value lies."""
        return reducer.add(self.ready(), reduction, steady=steady)

    def gradient(self) -> Array | None:
        """Return the gradient, dense, or None."""
        found = getattr(self.native, self.grad)
        return None if found is None else self.tensor(found).view()

    def unready(self) -> Trouble | None:
        """Return why it has no values yet, and what to do; None where it has."""
        return None

    def ready(self) -> Any:
        """Return the native object; raises `InputError` where it has no values yet."""
        trouble = self.unready()
        if trouble:
            msg = f"{self.path!r} {trouble[0]}\nHint: {trouble[1]} before the diff"
            raise InputError(msg)
        return self.native


class TreeModel(Model):
    """A model that is a tree of modules, of which each holds tensors.

    Subclasses say what is in the tree (`walk`, `held`); ``module`` and ``parameter`` are the classes that wrap what is
    found. `HookedModel` is for frameworks whose modules run hooks around their calls.
    """

    module: ClassVar[type[Module]]
    parameter: ClassVar[type[TensorParameter]]
    called: ClassVar[str] = "submodule"
    """What the framework calls a module below the root."""

    def __init__(self, native: Any, adapter: Adapter) -> None:
        super().__init__(native, adapter)
        self._known: dict[int, Module] = {}
        self.require_watchable()

    @abstractmethod
    def walk(self) -> Iterator[tuple[str, Any]]:
        """Yield every native module with every path under which it hangs, parents first."""

    @abstractmethod
    def held(self) -> Iterator[tuple[str, Any, bool]]:
        """Yield every native tensor with every path under which it hangs, and whether it is a buffer."""

    def natives(self) -> Iterator[tuple[str, Any]]:
        """Yield every native module once, with its first path, parents first."""
        seen: set[int] = set()
        for path, native in self.walk():
            if id(native) not in seen:
                seen.add(id(native))
                yield path, native

    def modules(self) -> Mapping[str, Module]:
        """Return every module once, by its first path; the wrappers stay the same from call to call."""
        return {path: self._wrapped(path, native) for path, native in self.natives()}

    def _wrapped(self, path: str, native: Any) -> Module:
        known = self._known.get(id(native))
        if known is None or known.native is not native or known.path != path:
            known = self._known[id(native)] = self.module(path, native, self.adapter.rule(native))
        return known

    def parameters(self) -> Mapping[str, TensorParameter]:
        """Return every parameter and buffer once, module by module, in the order of registration."""
        found: dict[int, tuple[Any, bool, dict[str, None]]] = {}
        for path, native, buffer in self.held():
            found.setdefault(id(native), (native, buffer, {}))[2][path] = None
        wrapped = (self.wrap_parameter(native, buffer, tuple(paths)) for native, buffer, paths in found.values())
        return {parameter.path: parameter for parameter in wrapped}

    def wrap_parameter(self, native: Any, buffer: bool, paths: tuple[str, ...]) -> TensorParameter:
        """Return the wrapper of a parameter or buffer."""
        return self.parameter(paths[0], native, buffer=buffer, paths=paths)

    @property
    def device(self) -> str:
        """Return where the parameters and buffers lie, the first one's place first."""
        return ",".join(dict.fromkeys(self.adapter.tensor(native).device for _, native, _ in self.held())) or "cpu"

    def trouble(self, native: Any) -> Trouble | None:
        """Return what keeps the calls of a native module from being seen, and what to do; the root is asked first."""
        return None

    def require_watchable(self) -> None:
        """Raise `UnwatchableModel` where a module's calls would not be seen, and say what to pass instead."""
        for path, native in self.natives():
            trouble = self.trouble(native)
            if trouble:
                name = qualified_name(native)
                where = f"the {self.called} {path!r} ({name})" if path else f"the model ({name})"
                msg = f"{where} {trouble[0]}\nHint: {trouble[1]}"
                raise UnwatchableModel(msg)
