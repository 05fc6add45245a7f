"""Wrap models of `FullyShardedDataParallel` (FSDP1), which makes the parameters of each unit parts of a flat one."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import torch

from padiff.adapter import Adapter, Array, InputError
from padiff_torch.distributed.pieces import FlatPart
from padiff_torch.distributed.wrappers import WrappedModel
from padiff_torch.model import TorchParameter
from padiff_torch.tensor import TorchTensor, filled

_HOME = "torch.distributed.fsdp.fully_sharded_data_parallel"


def units_of(model: Any) -> list[Any]:
    """Return the modules of FSDP1 within a model that hold parameters."""
    home = sys.modules.get(_HOME)
    if home is None or not isinstance(model, torch.nn.Module):
        return []
    found = (module for module in model.modules() if isinstance(module, home.FullyShardedDataParallel))
    return [unit for unit in found if getattr(unit, "_handle", None) is not None]


def is_flat(model: Any) -> bool:
    """Return whether a model's parameters lie in flat ones; on one rank they may be what they were."""
    return any(unit._handle.uses_sharded_strategy or not unit._handle._use_orig_params for unit in units_of(model))


def wrapped_by(model: Any) -> Any:
    """Return the module that a module of FSDP1 wraps; itself where it is no such one."""
    home = sys.modules.get(_HOME)
    while home is not None and isinstance(model, home.FullyShardedDataParallel):
        model = model._fsdp_wrapped_module
    return model


class FlatParameter(TorchParameter):
    """A parameter as far as its range of a flat one lies on this rank."""

    @property
    def dtype(self) -> str:
        """Return the dtype in which it is kept."""
        return TorchTensor(self.ready()).dtype

    def ready(self) -> Any:
        """Return what lies here."""
        return self.native.piece()

    def assign(self, array: Array) -> None:
        """Overwrite what lies here."""
        filled(self.native.piece(), self.fitting(array))


class FlatModel(WrappedModel):
    """A module of which `FullyShardedDataParallel` wraps all, or parts: the tree is the wrapped modules' own."""

    def __init__(self, wrapper: Any, inner: Any, adapter: Adapter) -> None:
        self._parts: dict[tuple[int, str], FlatPart] = {}
        """Of a module, by its id, and a name there: what hangs there of a flat parameter."""
        for unit in units_of(wrapper):
            flat = unit._handle.flat_param
            for index, (name, module, _) in enumerate(flat._param_infos):
                self._parts[id(module), name] = FlatPart(unit, index)
            for name, module, _, first, home, _ in flat._shared_param_infos:
                self._parts[id(module), name] = self._parts[id(home), first]
        super().__init__(wrapper, wrapped_by(inner), adapter)

    def children(self, native: Any) -> Iterable[tuple[str, Any]]:
        """Return the modules that a module holds, in the place of what wraps them."""
        return [(name, wrapped_by(child)) for name, child in super().children(native)]

    def tensors(self, native: Any) -> Iterable[tuple[str, Any, bool]]:
        """Return the parameters and buffers of a module; those of a flat parameter as parts of it."""
        yield from ((name, part, False) for (home, name), part in self._parts.items() if home == id(native))
        flat = {id(part.flat) for part in self._parts.values()}
        for name, tensor, buffer in super().tensors(native):
            if (id(native), name) not in self._parts and id(tensor) not in flat:
                yield name, tensor, buffer

    def wrap_parameter(self, native: Any, buffer: bool, paths: tuple[str, ...]) -> TorchParameter:
        """Return the wrapper of a parameter or buffer."""
        cls = FlatParameter if isinstance(native, FlatPart) else self.parameter
        return cls(paths[0], native, buffer=buffer, paths=paths)

    def stepped(self) -> Mapping[int, Sequence[FlatPart]]:
        """Return what names what optimizers are given -> the parts of flat parameters that it holds."""
        found: dict[int, list[FlatPart]] = {}
        for part in dict.fromkeys(self._parts.values()):
            found.setdefault(id(part.held), []).append(part)
        return found

    def machinery(self, native: Any) -> Collection[str]:
        """Return, too, the name of the flat parameter."""
        return {*super().machinery(native), "_flat_param"}

    def invoked(self, *args: Any, **kwargs: Any) -> Any:
        """Raise `InputError`: no call of a module by itself has its parameters."""
        msg = "FullyShardedDataParallel holds the model's parameters in flat ones, as which no module can be called.\n"
        msg += "Hint: record the script's own loop, with padiff.record(model, path), and compare what was recorded."
        raise InputError(msg)
