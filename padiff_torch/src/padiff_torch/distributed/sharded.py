"""Wrap models of `fully_shard` (FSDP2), which gathers each parameter's shards for as long as a module needs it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from padiff.adapter import Adapter, Hook, Parameter, Tensor
from padiff_torch.distributed.wrappers import WrappedModel
from padiff_torch.tensor import TorchTensor


class ShardedModel(WrappedModel):
    """A module whose parameters `fully_shard` spread: these are their shards, also while they are gathered."""

    def __init__(self, wrapper: Any, inner: Any, adapter: Adapter) -> None:
        self._held: dict[tuple[int, str], Any] = {}
        """Of a module, by its id, and a name there: what knows the parameter, sharded and gathered."""
        for one in (one for module in inner.modules() for one in _parameters_of(module)):
            about = one._module_info
            shared = zip(about.shared_modules, about.shared_param_names, strict=True)
            for module, name in ((about.module, about.param_name), *shared):
                self._held[id(module), name] = one
        self._awaited: list[tuple[Any, Callable[[Tensor], Any], Hook]] = []
        """Gradients that are awaited of what the pass that runs gathers first."""
        super().__init__(wrapper, inner, adapter)

    def tensors(self, native: Any) -> Iterable[tuple[str, Any, bool]]:
        """Return the parameters and buffers that a module holds, sharded."""
        for name, tensor, buffer in super().tensors(native):
            held = self._held.get((id(native), name))
            yield name, tensor if held is None else held.sharded_param, buffer

    def on_gradient(self, parameter: Parameter, callback: Callable[[Tensor], Any]) -> Hook:
        """Call back with the gradient that arrives at the gathered parameter: of this rank's own data, not reduced."""
        hook = Hook()
        self._awaited.append((parameter.native, callback, hook))
        return hook

    def leave(self, listener: Any, module: Any, native: Any, args: Any, kwargs: Any, output: Any) -> Any:
        """Report that a call ended; behind the model's own there is what gradients are awaited of."""
        if not module.path and self._awaited:
            gathered = {id(one.sharded_param): getattr(one, "_unsharded_param", None) for one in self._held.values()}
            for sharded, callback, hook in self._awaited:
                found = gathered.get(id(sharded))
                tensor = TorchTensor(sharded if found is None else found)
                hook.add(tensor.on_gradient(callback).close)
            self._awaited.clear()
        return super().leave(listener, module, native, args, kwargs, output)

    def run(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], differentiate: Any = None) -> Any:
        """Run it, and let go of the gathered parameters, which the outermost module keeps for a backward pass."""
        try:
            return super().run(args, kwargs, differentiate)
        finally:
            for module in self.native.modules() if not self.beside else ():
                if hasattr(module, "reshard"):
                    module.reshard()


def groups_of(module: Any) -> list[Any]:
    """Return what shards parameters at a module: in newer versions several."""
    state = module._get_fsdp_state() if hasattr(module, "_get_fsdp_state") else None
    several = getattr(state, "_fsdp_param_groups", None)
    found = [getattr(state, "_fsdp_param_group", None)] if several is None else several
    return [one for one in found if one is not None]


def _parameters_of(module: Any) -> Iterable[Any]:
    return (one for group in groups_of(module) for one in group.fsdp_params)
