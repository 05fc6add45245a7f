"""Wrap models: the tree, the parameters, and how they run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from padiff.adapter._info import offered_not
from padiff.adapter._listening import Hook, Intercept, Listener
from padiff.adapter._module import Module, Parameter
from padiff.adapter._tensor import Tensor
from padiff.errors import InputError, LiftError, NotOffered
from padiff.import_string import loss_of, optimizer_of
from padiff.kinds import Ranks

if TYPE_CHECKING:
    from padiff.adapter._adapter import Adapter


class Tape:
    """What lets a user's own script run backward: over one step of it, from the model's first call to `close`.

    As it stands it serves frameworks that record whatever they compute, and whose losses have a ``backward()``.
    """

    def begin(self) -> None:
        """Record what is computed from here on; said before every call of the model, so often more than once."""

    def backward(self, loss: Any) -> Any:
        """Run backward from a native loss, and return what the framework's own way returns.

        Gradients add up at `Parameter.gradient` as they do in the framework. Raises `InputError` where no backward
        pass can start there.
        """
        if not callable(getattr(loss, "backward", None)):
            msg = f"the loss is a {type(loss).__qualname__}, which has no backward().\n"
            msg += "Hint: give the tensor that the model's outputs led to."
            raise InputError(msg)
        return loss.backward()

    def close(self) -> None:
        """Stop recording; closing twice is harmless."""


class Model(ABC):
    """A model, wrapped: its tree, its parameters, and how it runs."""

    def __init__(self, native: Any, adapter: Adapter) -> None:
        self.native = native
        self.adapter = adapter

    @abstractmethod
    def modules(self) -> Mapping[str, Module]:
        """Return every module once, by its first path, parents first, the root under ``""``."""

    @abstractmethod
    def parameters(self) -> Mapping[str, Parameter]:
        """Return every parameter and buffer once, by its first path; tied ones name all their paths."""

    @property
    def device(self) -> str:
        """Return where the parameters lie; ``cpu`` where there are none; several joined with commas, in their order."""
        return "cpu"

    @abstractmethod
    def attach(self, listener: Listener) -> Hook:
        """Report every module's calls to the listener until the hook is closed.

        Calls that the framework repeats on its own in the backward pass (recomputation) are not reported.
        """

    def on_gradient(self, parameter: Parameter, callback: Callable[[Tensor], Any]) -> Hook:
        """Call back with each gradient that arrives at a parameter, until the hook is closed.

        Overridden where what a pass uses is another tensor than the parameter itself: one that is gathered.
        """
        return self.adapter.tensor(parameter.native).on_gradient(callback)

    def intercept_operations(self, intercept: Intercept) -> Hook:
        """Let ``intercept`` be called in place of the framework's functions on tensors, until the hook is closed.

        That is: its functions, the operators and the methods of its tensors, under names such as
        ``torch.nn.functional.relu`` and ``torch.Tensor.mul``. Functions that these call themselves may be reported as
        well, and so may those called outside of the model: the core tells them apart. ``intercept`` returns what the
        caller gets, and has called the function unless that raised. Of several at a time the last one is called first,
        and what it calls as the function leads to the one before it.
        """
        return self.hear_operations(intercept)

    def hear_operations(self, intercept: Intercept) -> Hook:
        """Answer to the name that `intercept_operations` had before padiff 0.5, for adapters written then."""
        raise NotOffered(offered_not("operations were to be compared", "operations"))

    @abstractmethod
    def run(
        self,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        differentiate: Callable[[Any], list[tuple[Any, Any | None]]] | None = None,
    ) -> Any:
        """Call the model, and run backward from what ``differentiate(output)`` returns; return the output.

        That is a list of (native tensor, native gradient); a gradient of None stands for 1 (a scalar loss).
        Without it no gradient is computed, though the forward pass is the one of training code (grad mode
        on). Gradients of parameters are then at `Parameter.gradient`, those of inputs reach hooks on the
        inputs. Old parameter gradients are dropped first, so nothing accumulates over runs.
        """

    def tape(self) -> Tape:
        """Return what lets the user's own script run backward, over one step of it."""
        return Tape()

    @abstractmethod
    def preserved(self) -> AbstractContextManager[Callable[[], list[str]] | None]:
        """Put back, on leaving and also after an exception, what a run changes.

        That is: gradients (the very same objects), requires_grad, the mode and the plain attributes of every
        module with what they hold, and the values of buffers, bit for bit. Parameter values are left alone: only an
        asked-for transfer or step changes them. May give what tells, within, the plain attributes that were changed.
        """

    def evaluate(self) -> None:
        """Put every module into evaluation mode; `preserved`, within which this is said, puts the modes back.

        Here nothing happens: there are no modes (see the capability ``modes``).
        """
        return

    def lifted(self, dtype: str) -> AbstractContextManager[None]:
        """Hold all floating parameters and buffers in ``dtype`` within; put the old objects back after.

        Old values come back bit for bit, as the same storage. Raises `LiftError` where a move is impossible.
        """
        raise LiftError(offered_not(f"{type(self.native).__qualname__} was to run in {dtype}", "float64"))

    def ranks(self) -> Ranks | None:
        """Return what this process is among several that run the model; None where it is the only one.

        Nothing is asked of another rank.
        """
        return None

    def rebuild(self) -> list[str]:
        """Let modules make anew what they keep of their weights, which are others now; name what changed.

        Overridden where modules may keep in evaluation mode what they made of their weights on the way there.
        """
        return []

    def step(self, optimizer: Any) -> None:
        """Let a native optimizer take one step with the gradients at `Parameter.gradient`, and clear them.

        As the adapter's `step` does; overridden where an optimizer does not know its parameters and is told the model.
        """
        self.adapter.step(optimizer)

    def loss(self, given: Any, side: int) -> Any:
        """Return the loss that a user gave, as a function of this model's output; None where none was given.

        A string names it, or a pair of which ``side`` is the index: 0 for the reference, 1 for the candidate.
        """
        return loss_of(given, side) if isinstance(given, str) else given

    def optimizer(self, given: Any, side: int) -> Any:
        """Return the optimizer that a user gave; a string names it, or a function that makes it of the model."""
        return optimizer_of(given, side, self.native) if isinstance(given, str) else given
