"""Models in the hands of what trains them: DistributedDataParallel, FSDP, and as a base DeepSpeed's engine.

The tree is the wrapped module's own: the wrapper folds away. A script's passes go through the wrapper; what padiff runs
in a wider type goes past it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from padiff.adapter import Adapter, InputError, handed_on
from padiff_torch.distributed.detached import detached
from padiff_torch.distributed.pieces import is_partitioned, piece_of
from padiff_torch.model import TorchModel, TorchParameter
from padiff_torch.tensor import TorchTensor, filled

Array = Any
_STATE = ("ds_", "_ds_", "__composable_api_state")


class PieceParameter(TorchParameter):
    """A parameter as far as it lies on this rank."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of what lies here."""
        return tuple(piece_of(self.ready()).shape)

    def view(self) -> Array:
        """Return what lies here."""
        return TorchTensor(piece_of(self.ready())).view()

    def gradient(self) -> Array | None:
        """Return what lies here of the gradient."""
        found = self.native.grad
        return None if found is None else TorchTensor(piece_of(found)).view()

    def assign(self, array: Array) -> None:
        """Overwrite what lies here."""
        array, held = self.fitting(array), piece_of(self.native).detach()
        filled(held, array)
        if is_partitioned(self.native) and tuple(self.native.shape) == array.shape:
            filled(self.native.data, array)  # what ZeRO-3 keeps gathered

    def set_gradient(self, array: Array | None) -> None:
        """Replace what lies here of the gradient."""
        self.native.grad = None if array is None else self.native.detach().clone()
        if array is not None:
            filled(piece_of(self.native.grad), self.fitting(array))


class WrappedModel(TorchModel):
    """A module and the wrapper that trains it, which may have become the module itself."""

    parameter = PieceParameter

    def __init__(self, wrapper: Any, inner: Any, adapter: Adapter) -> None:
        self.wrapper = wrapper
        self.beside = False
        """Whether runs go past the wrapper."""
        super().__init__(inner, adapter)

    def machinery(self, native: Any) -> Collection[str]:
        """Return, too, the names under which the wrapper keeps its state: what it holds of a pass is its own affair."""
        return {*super().machinery(native), *(name for name in vars(native) if name.startswith(_STATE))}

    def register(self, native: Any, name: str, end: Callable[..., Any]) -> Callable[[], Any]:
        """Register a hook; what a module is given is seen before the wrapper's own hooks pack it into other tensors."""
        before = {"prepend": True} if name == self.registers[0] else {}
        remove: Callable[[], Any] = getattr(native, name)(end, with_kwargs=True, **before).remove
        return remove

    def invoked(self, *args: Any, **kwargs: Any) -> Any:
        """Call the wrapper, which calls the module."""
        return handed_on(self.native if self.beside else self.wrapper, args, kwargs)

    def lifted(self, dtype: str) -> AbstractContextManager[None]:
        """Hold parameters of padiff's own in ``dtype``; raises `LiftError` where parts of them lie elsewhere."""
        return self._detached(dtype)

    @contextmanager
    def _detached(self, dtype: str) -> Iterator[None]:
        self.beside = True
        try:
            with detached(self.native), super().lifted(dtype):
                yield
        finally:
            self.beside = False


class ChunkedModel(WrappedModel):
    """The chunks of one model that a rank of a pipeline holds; what they have in common, the root first, is one."""

    def __init__(self, wrapper: Any, inner: Sequence[Any], adapter: Adapter) -> None:
        self.chunks = [TorchModel(chunk, adapter) for chunk in inner]
        super().__init__(wrapper, inner[0], adapter)

    def walk(self) -> Iterator[tuple[str, Any]]:
        """Yield every native module of every chunk, under its path in the whole model."""
        for chunk in self.chunks:
            yield from chunk.walk()

    def own(self) -> tuple[tuple[str, ...], ...]:
        """Return the paths, of each chunk, at which no other one has anything."""
        paths = [{path for path, _ in chunk.walk()} for chunk in self.chunks]
        counts = Counter(path for one in paths for path in one)
        return tuple(
            tuple(sorted(p for p in one if counts[p] == 1 and counts.get(p.rpartition(".")[0]) != 1)) for one in paths
        )

    def invoked(self, *args: Any, **kwargs: Any) -> Any:
        """Raise `InputError`: a schedule runs the chunks, and a script the schedule."""
        msg = "a list of models is no model that can be called.\n"
        msg += "Hint: pass one model; of one in chunks record the script's own loop, with padiff.record(chunks, path)."
        raise InputError(msg)
