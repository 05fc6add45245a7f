"""Wrap MindSpore models: their tree, their parameters, and how they run."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import mindspore
from mindspore import nn
from numpy.typing import NDArray

from padiff.adapter import Adapter, Hear, Hook, Listener, Model, Module, Parameter, Tape
from padiff.errors import InputError, UnwatchableModel
from padiff.pytree import leaves
from padiff_mindspore import autograd, state
from padiff_mindspore.operations import hear_functions
from padiff_mindspore.spelling import note_size
from padiff_mindspore.tape import MindSporeTape
from padiff_mindspore.tensor import array_of, device_name, dtype_of, from_array, is_inexact, numpy_dtype, overwrite

__all__ = ["MindSporeModel", "MindSporeModule", "MindSporeParameter"]

Array = NDArray[Any]

# MindSpore keeps statistics as parameters that are not trained, which a frozen weight is too.
_STATISTIC = re.compile(r"^(moving|running)_(mean|var|variance)$|^num_batches_tracked$|(^|_)ema(_|$)")


def _named(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


class MindSporeModule(Module):
    """Wrap one ``mindspore.nn.Cell``."""

    @property
    def training(self) -> bool:
        """Return whether the cell is in training mode."""
        return bool(self.native.training)

    @property
    def forward(self) -> Callable[..., Any]:
        """Return the bound ``construct``."""
        construct: Callable[..., Any] = self.native.construct
        return construct


class MindSporeParameter(Parameter):
    """Wrap one parameter or buffer of a cell; raises `InputError` where it has no values yet.

    MindSpore keeps no gradient with a parameter of its own accord; it stands where its autograd would accumulate one.
    """

    @property
    def dtype(self) -> str:
        """Return the dtype's name."""
        return dtype_of(self.native)

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the native shape."""
        if getattr(self.native, "has_init", False):
            msg = f"{self.path!r} has no values yet: it was made under no_init_parameters"
            msg += "\nHint: call model.init_parameters_data() before the diff"
            raise InputError(msg)
        return tuple(self.native.shape)

    @property
    def trainable(self) -> bool:
        """Return whether it gets a gradient."""
        return not self.buffer and bool(self.native.requires_grad)

    def view(self) -> Array:
        """Return the values in native layout, without a copy on the CPU."""
        return array_of(self.native)

    def assign(self, array: Array) -> None:
        """Overwrite the values in place; raises ``ValueError`` where the shapes differ."""
        overwrite(self.native, self._fitting(array))

    def gradient(self) -> Array | None:
        """Return the gradient, or None."""
        gradient = self.native._grad
        return None if gradient is None else array_of(gradient)

    def set_gradient(self, array: Array | None) -> None:
        """Set the gradient that the next optimizer step reads, or remove it."""
        self.native._grad = None if array is None else from_array(self._fitting(array))

    def _fitting(self, array: Array) -> Array:
        """Return the array in this parameter's dtype; its shape must be the same."""
        if array.shape != self.shape:
            msg = f"an array of shape {array.shape} does not fit {self.path!r} of shape {self.shape}"
            raise ValueError(msg)
        return array.astype(numpy_dtype(self.native), copy=False)


class MindSporeModel(Model):
    """Wrap one ``mindspore.nn.Cell`` as a model; raises `UnwatchableModel` where hooks would be ignored."""

    def __init__(self, native: Any, adapter: Adapter) -> None:
        _require_watchable(native)
        super().__init__(native, adapter)
        self._modules: dict[str, MindSporeModule] = {}

    def modules(self) -> Mapping[str, MindSporeModule]:
        """Return every cell once, by its first path, parents first; wrappers stay the same over calls."""
        known, self._modules = self._modules, {}
        for path, cell in self._cells():
            old = known.get(path)
            keep = old is not None and old.native is cell
            self._modules[path] = old if keep and old else MindSporeModule(path, cell, self.adapter.rule(cell))
        return self._modules

    def _cells(self) -> Iterator[tuple[str, Any]]:
        """Yield every cell once, by its first path; an empty SequentialCell too, which MindSpore leaves out."""
        seen: set[int] = set()
        for path, cell in _walk(self.native):
            if id(cell) not in seen:
                seen.add(id(cell))
                yield path, cell

    def parameters(self) -> Mapping[str, MindSporeParameter]:
        """Return every parameter and buffer once, statistics among the buffers, by its first path."""
        found: dict[int, tuple[Any, bool, dict[str, None]]] = {}
        for path, name, native, buffer in self._held():
            # A ParameterTuple hangs parameters of cells below at the cell that holds it, under their full names.
            if "." in name and id(native) in found:
                continue
            paths = found.setdefault(id(native), (native, buffer, {}))[2]
            paths[f"{path}.{name}" if path else name] = None
        result = {}
        for native, buffer, paths in found.values():
            first, *_ = names = tuple(paths)
            result[first] = MindSporeParameter(first, native, buffer=buffer, paths=names)
        return result

    def _held(self) -> Iterator[tuple[str, str, Any, bool]]:
        cells = list(_walk(self.native))
        for dotted in (False, True):
            for path, cell in cells:
                for name, native in cell._params.items():
                    if native is not None and ("." in name) is dotted:
                        native = native if native.inited_param is None else native.inited_param
                        yield path, name, native, not native.requires_grad and bool(_STATISTIC.search(name))
                if not dotted:
                    yield from (
                        (path, name, native, True) for name, native in cell._buffers.items() if native is not None
                    )

    @property
    def device(self) -> str:
        """Return where MindSpore computes: parameters go there by themselves."""
        return device_name()

    def attach(self, listener: Listener) -> Hook:
        """Report every cell's calls, but for those that recomputation repeats in the backward pass.

        The hooks stand behind the user's own: they hear what ``construct`` gets and what the caller gets.
        """
        _require_watchable(self.native)
        hook = Hook(state.tidying(cell for _, cell in self._cells()))
        try:
            for module in self.modules().values():
                before, after = partial(_enter, listener, module), partial(_leave, listener, module)
                hook.add(module.native.register_forward_pre_hook(before, with_kwargs=True).remove)
                hook.add(module.native.register_forward_hook(after, with_kwargs=True).remove)
        except BaseException:
            hook.close()
            raise
        return hook

    def hear_operations(self, hear: Hear) -> Hook:
        """Let ``hear`` be called in place of MindSpore's functions until the hook is closed."""
        return hear_functions(self.native, hear)

    def run(
        self,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        differentiate: Callable[[Any], list[tuple[Any, Any | None]]] | None = None,
    ) -> Any:
        """Call the model, and run backward from what ``differentiate(output)`` returns; return the output."""
        _require_watchable(self.native)
        parameters = [parameter.native for parameter in self.parameters().values()]
        for native in parameters:
            native._grad = None
        cells = [cell for _, cell in self._cells()]
        with autograd.in_turn():
            with state.reseeded(cells), state.tidied(cells), autograd.recording() as nodes:
                output = self.native(*args, **kwargs)
                pairs = [] if differentiate is None else list(_starts(differentiate(output)))
            trained = [native for native in parameters if autograd.differentiable(native) and is_inexact(native)]
            inputs = _unique([*trained, *self._hidden(), *_sources((args, kwargs))])
            if pairs and inputs:
                found = dict(zip(map(id, inputs), autograd.gradients(pairs, inputs), strict=True))
                for native in trained:
                    native._grad = found[id(native)]
        del nodes  # the backward pass has run
        return output

    def tape(self) -> Tape:
        """Return what records from a call to the backward pass behind it; old parameter gradients are dropped."""
        for parameter in self.parameters().values():
            parameter.native._grad = None
        return MindSporeTape(self.native.trainable_params)

    def _hidden(self) -> list[Any]:
        """Return trainable parameters that MindSpore does not see: without them their cells' gradients would end."""
        hidden = (native for _, cell in self._cells() for native in state.hidden_parameters(cell))
        return [native for native in hidden if autograd.differentiable(native)]

    def preserved(self) -> AbstractContextManager[None]:
        """Put back gradients, requires_grad, modes, plain attributes, and buffers bit for bit on leaving."""
        cells = [cell for _, cell in self._cells()]
        parameters = self.parameters().values()
        # A forward of the user's own may keep state in a parameter of any name.
        own = {id(native) for cell in cells if self.adapter.rule(cell) is None for native in cell._params.values()}
        changing = [p.native for p in parameters if p.buffer or (id(p.native) in own and not p.trainable)]
        return state.preserved(cells, [p.native for p in parameters], changing)

    def evaluate(self) -> None:
        """Put every cell into evaluation mode; ``set_train`` would leave more behind than the mode."""
        for _, cell in self._cells():
            cell.training = False

    def lifted(self, dtype: str) -> AbstractContextManager[None]:
        """Hold floating parameters, buffers and tensor attributes in ``dtype``; MindSpore has no default dtype."""
        parameters = [item.native for item in self.parameters().values()]
        return state.lifted([cell for _, cell in self._cells()], parameters, dtype)


# Running ----------------------------------------------------------------------------------------------------


def _starts(pairs: Iterable[tuple[Any, Any | None]]) -> Iterator[tuple[Any, Any]]:
    """Yield (tensor, gradient) where a backward pass can start; 1 stands for no gradient."""
    for native, gradient in pairs:
        if autograd.differentiable(native):
            yield native, mindspore.ops.ones_like(native) if gradient is None else gradient


def _sources(arguments: Any) -> Iterator[Any]:
    """Yield the leaves that collect gradients behind a model's arguments."""
    for _, native in leaves(arguments, lambda value: isinstance(value, mindspore.Tensor)):
        source = autograd.source_of(native)
        if autograd.differentiable(source):
            yield source


def _unique(natives: Iterable[Any]) -> list[Any]:
    return list({id(native): native for native in natives}.values())


# Watching ---------------------------------------------------------------------------------------------------


def _walk(cell: Any, path: str = "", above: tuple[int, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield every cell under every path, parents first; not what ``cell.recompute()`` puts beside the children."""
    yield path, cell
    for name, child in cell._cells.items():
        if child is not None and id(child) not in above and name != "_recompute_cell":
            yield from _walk(child, f"{path}.{name}" if path else name, (*above, id(cell)))


def _enter(listener: Listener, module: MindSporeModule, _: Any, args: Any, kwargs: Any) -> Any:
    if autograd.recomputing():
        return None
    note_size(module.native, args)
    return listener.enter(module, args, kwargs)


def _leave(listener: Listener, module: MindSporeModule, _: Any, args: Any, kwargs: Any, output: Any) -> Any:
    if autograd.recomputing():
        return None
    autograd.finish()  # what went wrong in this cell is raised here, not in a later one
    return listener.leave(module, args, kwargs, output)


def _require_watchable(native: Any) -> None:
    """Raise `UnwatchableModel` where hooks on this model would never run, and say what to do."""
    if isinstance(native, mindspore.train.Model):
        msg = f"{_named(native)} is a trainer around a network\nHint: pass the network itself"
        raise UnwatchableModel(msg)
    if not isinstance(native, nn.Cell):
        msg = f"{_named(native)} is no mindspore.nn.Cell: it has no calls to watch\nHint: pass the Cell itself"
        raise UnwatchableModel(msg)
    interpreted = os.environ.get("MS_JIT") == "0"
    if mindspore.get_context("mode") == mindspore.GRAPH_MODE and not interpreted:
        msg = f"{_named(native)} would run in GRAPH_MODE, where hooks are silently ignored\n"
        msg += "Hint: call mindspore.set_context(mode=mindspore.PYNATIVE_MODE) before the diff"
        raise UnwatchableModel(msg)
    for path, cell in _walk(native):
        where = f"the cell {path!r} ({_named(cell)})" if path else f"the model ({_named(cell)})"
        if isinstance(cell, nn.GraphCell):
            msg = f"{where} is one loaded graph without cells to watch\n"
            msg += "Hint: build the model from its class and load its parameters with load_checkpoint"
            raise UnwatchableModel(msg)
        compiler = _compiler(cell.construct)
        if compiler is not None and not (interpreted and compiler == "api.py"):
            msg = f"{where} has a construct compiled by mindspore.jit, where hooks are silently ignored\n"
            msg += "Hint: set the environment variable MS_JIT=0, or leave out the decorator, for the diff"
            raise UnwatchableModel(msg)


_GRAPH = os.path.join(os.path.dirname(mindspore.__file__), "graph", "")


def _compiler(construct: Any) -> str | None:
    """Return the name of MindSpore's file whose decorator wraps a construct, None where none does."""
    while hasattr(construct, "__wrapped__"):
        code = getattr(getattr(construct, "__func__", construct), "__code__", None)
        if code is not None and code.co_filename.startswith(_GRAPH):
            return os.path.basename(code.co_filename)
        construct = construct.__wrapped__
    return None
