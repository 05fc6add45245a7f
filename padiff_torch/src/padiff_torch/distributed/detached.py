"""Run a module that is trained by a wrapper past that wrapper: on parameters of its own, without the wrapper's hooks.

What DeepSpeed, DistributedDataParallel and FSDP hang on parameters and modules reduces and frees as their own passes
need it. A call that is replayed, or a run in a wider type, is none of their passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from padiff.adapter import LiftError
from padiff_torch.distributed.pieces import is_whole, piece_of
from padiff_torch.model import TorchModel

_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
_OWNERS = ("deepspeed.", "torch.distributed.", "torch.nn.parallel.")
"""Packages whose hooks on modules gather, reduce and free."""


class DetachedModel(TorchModel):
    """A part of a model that a wrapper trains, which is run by itself."""

    @contextmanager
    def preserved(self) -> Iterator[Callable[[], list[str]]]:
        """Hold plain parameters within."""
        with detached(self.native), super().preserved() as changed:
            yield changed


@contextmanager
def detached(native: Any) -> Iterator[None]:
    """Give every module below a native one parameters of its own, and take the wrapper's hooks away; put both back."""
    twins: dict[int, Any] = {}
    with ExitStack() as stack, torch.no_grad():
        for module in list(native.modules()):
            stack.callback(_put_back, module._parameters, dict(dict.items(module._parameters)))
            for name, parameter in list(dict.items(module._parameters)):
                if parameter is not None:
                    if id(parameter) not in twins:
                        twins[id(parameter)] = _twin(name, parameter)
                    module._parameters[name] = twins[id(parameter)]
            for table in (getattr(module, name, None) for name in _HOOKS):
                if table:
                    stack.callback(_put_back, table, dict(table))
                    for key in [key for key, hook in table.items() if _owner(hook).startswith(_OWNERS)]:
                        del table[key]
        with torch.enable_grad():
            yield


def _twin(name: str, parameter: Any) -> Any:
    if not is_whole(parameter):
        msg = f"of {name!r} there is a part on this rank alone"
        raise LiftError(msg)
    return torch.nn.Parameter(piece_of(parameter).detach().clone(), parameter.requires_grad)


def _put_back(table: Any, before: dict[Any, Any]) -> None:
    table.clear()
    table.update(before)


def _owner(hook: Any) -> str:
    """Return the module in which a hook is defined."""
    while hasattr(hook, "func"):
        hook = hook.func
    return f"{getattr(hook, '__module__', None) or type(hook).__module__}."
