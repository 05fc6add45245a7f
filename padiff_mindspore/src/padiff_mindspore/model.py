"""Wrap MindSpore cells: their tree, their parameters, and how they run and come back as they were."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import mindspore
from mindspore import nn

from padiff.adapter import Array, Hook, HookedModel, HookedModule, Listener, Module, Tape, TensorParameter, leaves
from padiff_mindspore import autograd, state
from padiff_mindspore.spelling import note_size
from padiff_mindspore.tape import MindSporeTape
from padiff_mindspore.tensor import MindSporeTensor, device_name, from_array, is_inexact, overwrite
from padiff_mindspore.versions import MINDSPORE

# MindSpore keeps statistics as parameters that are not trained, which a frozen weight is too.
_STATISTIC = re.compile(r"^(moving|running)_(mean|var|variance)$|^num_batches_tracked$|(^|_)ema(_|$)")


class MindSporeModule(HookedModule):
    """A ``mindspore.nn.Cell`` as padiff sees it."""

    body = "construct"


class MindSporeParameter(TensorParameter):
    """A parameter or a buffer of a cell.

    MindSpore keeps no gradient with a parameter of its own accord; it stands where its autograd would accumulate one.
    """

    tensor = MindSporeTensor
    grad = "_grad"

    def assign(self, array: Array) -> None:
        """Overwrite the values in place; raises ``ValueError`` where the shapes differ."""
        overwrite(self.native, self.fitting(array))

    def thaw(self) -> None:
        """Let it get a gradient."""
        self.native.requires_grad = True

    def set_gradient(self, array: Array | None) -> None:
        """Set the gradient that the next optimizer step reads, or remove it."""
        self.native._grad = None if array is None else from_array(self.fitting(array))

    def unready(self) -> tuple[str, str] | None:
        """Return why it has no values yet."""
        if getattr(self.native, "has_init", False):
            return "has no values yet: it was made under no_init_parameters", "call model.init_parameters_data()"
        return None


class MindSporeModel(HookedModel):
    """A ``mindspore.nn.Cell`` as a model; raises `UnwatchableModel` where hooks would be ignored."""

    module = MindSporeModule
    parameter = MindSporeParameter
    tables = ("_buffers",)
    modes = ("training", "_phase")
    switches = ("set_train",)
    called = "cell"
    base = nn.Cell
    state = state

    def children(self, native: Any) -> Iterable[tuple[str, Any]]:
        """Return the cells that a cell holds; not what ``cell.recompute()`` puts beside them."""
        return ((name, cell) for name, cell in native._cells.items() if name != "_recompute_cell")

    def _cells(self) -> list[Any]:
        return [cell for _, cell in self.natives()]

    def tensors(self, native: Any) -> Iterable[tuple[str, Any, bool]]:
        """Return the parameters and buffers that a cell holds, statistics among the buffers."""
        for name, one in native._params.items():
            if one is not None:
                one = one if one.inited_param is None else one.inited_param
                yield name, one, not one.requires_grad and bool(_STATISTIC.search(name))
        yield from ((name, one, True) for name, one in native._buffers.items() if one is not None)

    def held(self) -> Iterator[tuple[str, Any, bool]]:
        """Yield every tensor by every path.

        A ParameterTuple hangs parameters of cells below at the cell that holds it, under their full names: these paths
        count where there is no other one.
        """
        everything = [(path, *one) for path, cell in self.walk() for one in self.tensors(cell)]
        seen: set[int] = set()
        for dotted in (False, True):
            for path, name, native, buffer in everything:
                if ("." in name) is dotted and not (dotted and id(native) in seen):
                    seen.add(id(native))
                    yield f"{path}.{name}" if path else name, native, buffer

    @property
    def device(self) -> str:
        """Return where MindSpore computes: parameters go there by themselves."""
        return device_name()

    def attach(self, listener: Listener) -> Hook:
        """Report every cell's calls; the hooks see what ``construct`` gets and what the caller gets."""
        with Hook(state.tidying(self._cells())).opening() as hook:
            hook.add(super().attach(listener).close)
        return hook

    def repeated(self) -> bool:
        """Return whether a call happens in the backward pass, where only recomputation calls cells."""
        return autograd.recomputing()

    def enter(self, listener: Listener, module: Module, native: Any, args: Any, kwargs: Any) -> Any:
        """Report that a call begins, and note what size it is made on."""
        if not self.repeated():
            note_size(module.native, args)
        return super().enter(listener, module, native, args, kwargs)

    def leave(self, listener: Listener, module: Module, native: Any, args: Any, kwargs: Any, output: Any) -> Any:
        """Report that a call ended; what went wrong in this cell is raised here, not in a later one."""
        if not self.repeated():
            autograd.finish()
        return super().leave(listener, module, native, args, kwargs, output)

    def run(
        self,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        differentiate: Callable[[Any], list[tuple[Any, Any | None]]] | None = None,
    ) -> Any:
        """Call the model, and run backward from what ``differentiate(output)`` returns; return the output."""
        self.require_watchable()
        parameters = [parameter.native for parameter in self.parameters().values()]
        self._forget()
        cells = self._cells()
        tidy = Hook(state.tidying(cells))
        with (
            state.reseeded(cells),
            tidy,
            state.recorded_at_once(cells),
            state.counting_draws(),
            autograd.recording() as nodes,
        ):
            output = self.native(*args, **kwargs)
            starts = [] if differentiate is None else differentiate(output)
            pairs = [
                (native, mindspore.ops.ones_like(native) if gradient is None else gradient)
                for native, gradient in starts
                if autograd.differentiable(native)
            ]
        trained = [native for native in parameters if autograd.differentiable(native) and is_inexact(native)]
        hidden = [native for native in self._hidden() if autograd.differentiable(native)]
        found = (*trained, *hidden, *_sources((args, kwargs)))
        inputs = list({id(native): native for native in found}.values())
        if pairs and inputs:
            gradients = dict(zip(map(id, inputs), autograd.gradients(pairs, inputs), strict=True))
            for native in trained:
                native._grad = gradients[id(native)]
        del nodes  # the backward pass has run
        return output

    def tape(self) -> Tape:
        """Return what records from a call to the backward pass behind it; old parameter gradients are dropped."""
        self._forget()
        return MindSporeTape(self.native.trainable_params)

    def _forget(self) -> None:
        for parameter in self.parameters().values():
            parameter.native._grad = None

    def _hidden(self) -> Iterator[Any]:
        """Yield parameters that MindSpore does not see: without them their cells' gradients would end."""
        return (native for cell in self._cells() for native in state.hidden_parameters(cell))

    def changing(self, parameters: Iterable[TensorParameter]) -> Iterator[TensorParameter]:
        """Return the buffers; a forward of the user's own may keep state in a parameter of any name too."""
        cells = (cell for cell in self._cells() if self.adapter.rule(cell) is None)
        own = {id(native) for cell in cells for native in cell._params.values()}
        for parameter in parameters:
            if parameter.buffer or (id(parameter.native) in own and not parameter.trainable):
                yield parameter

    @contextmanager
    def preserved(self) -> Iterator[Callable[[], list[str]]]:
        """Put back gradients, requires_grad, modes, plain attributes, and buffers bit for bit on leaving."""
        with super().preserved() as changed, state.computing_in(""):
            yield changed

    @contextmanager
    def computing_in(self, dtype: str) -> Iterator[None]:
        """Let no cell cast what it computes within."""
        with state.uncast(self._cells(), dtype), state.computing_in(dtype):
            yield

    def liftable(self) -> Iterable[TensorParameter]:
        """Return every parameter, those that MindSpore does not see among them."""
        hidden = (self.wrap_parameter(one, False, (one.name,)) for one in self._hidden())
        return [*self.parameters().values(), *hidden]

    def trouble(self, native: Any) -> tuple[str, str] | None:
        """Return what keeps a cell's hooks from running."""
        interpreted = os.environ.get("MS_JIT") == "0"
        if native is self.native:
            if isinstance(native, mindspore.train.Model):
                return "is a trainer around a network", "pass the network itself"
            if not isinstance(native, nn.Cell):
                return "is no mindspore.nn.Cell: it has no calls to watch", "pass the Cell itself"
            if mindspore.get_context("mode") == mindspore.GRAPH_MODE and not interpreted:
                return (
                    "would run in GRAPH_MODE, where hooks are silently ignored",
                    "call mindspore.set_context(mode=mindspore.PYNATIVE_MODE) before the diff",
                )
        if isinstance(native, nn.GraphCell):
            return (
                "is one loaded graph without cells to watch",
                "build the model from its class and load its parameters with load_checkpoint",
            )
        compiler = _compiler(native.construct)
        if compiler is not None and not (interpreted and compiler == "api.py"):
            return (
                "has a construct compiled by mindspore.jit, where hooks are silently ignored",
                "set the environment variable MS_JIT=0, or leave out the decorator, for the diff",
            )
        return None


def _sources(arguments: Any) -> Iterator[Any]:
    """Yield the leaves that collect gradients behind a model's arguments."""
    for _, native in leaves(arguments, lambda value: isinstance(value, mindspore.Tensor)):
        source = autograd.source_of(native)
        if autograd.differentiable(source):
            yield source


def _compiler(construct: Any) -> str | None:
    """Return the name of MindSpore's file whose decorator wraps a construct, None where none does."""
    while hasattr(construct, "__wrapped__"):
        code = getattr(getattr(construct, "__func__", construct), "__code__", None)
        if code is not None and (compiler := MINDSPORE.compiler(code.co_filename)) is not None:
            return compiler
        construct = construct.__wrapped__
    return None
