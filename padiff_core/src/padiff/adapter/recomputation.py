"""Let recomputation run as any other code, so that hooks see what gradients reach.

Of the reentrant form, the first run is without gradients: no tensor of it gets one. Of the other, what is computed
again in the backward pass is not what was put in. Here the function runs once, with gradients; in the backward pass it
still runs again, for what it does to running statistics and counters: that happens twice. Whether what is computed
again leads to the same gradients shows in a run `as_it_is`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from inspect import Signature
from typing import Any

from padiff.adapter._listening import handed_on
from padiff.adapter.restoring import replaced, switched

Function = Callable[..., Any]

_as_it_is = False
_seen = 0
"""How many functions ran so, in this process."""


def given_to(
    entry: Signature, given: Iterable[Any], named: Mapping[str, Any]
) -> tuple[Function, bool, tuple[Any, ...], dict[str, Any]]:
    """Return what an entry to recomputation was given: the function, whether to keep random states, its arguments.

    What stands between them is another thing in each version of a framework.
    """
    bound = entry.bind(*given, **named)
    bound.apply_defaults()
    held = bound.arguments
    function = next(held[name] for name in ("fn", "run_function", "function") if name in held)
    return function, held["preserve_rng_state"], held["args"], held["kwargs"]


@contextmanager
def at_once(*places: tuple[Any, str, Any]) -> Iterator[None]:
    """Put what runs functions at once where a framework's checkpoints are: owner, name, what is put there."""
    with ExitStack() as stack:
        for place in () if _as_it_is else places:
            stack.enter_context(replaced(*place))
        yield


@contextmanager
def as_it_is() -> Iterator[None]:
    """Leave recomputation to the framework within."""
    global _as_it_is
    before, _as_it_is = _as_it_is, True
    try:
        yield
    finally:
        _as_it_is = before


def recomputed() -> int:
    """Return how many functions ran here so far that will be, or would have been, computed again."""
    return _seen


class Recomputation:
    """What runs functions in the place of a framework's checkpoints.

    The switches of gradients and the state of the generator of ``home``, the framework, are called as torch's.
    ``differentiable`` gives those of some arguments that a gradient can reach.
    """

    def __init__(self, home: Any, differentiable: Callable[[tuple[Any, ...]], list[Any]]) -> None:
        self._home, self._differentiable = home, differentiable

    def reentrant(self, function: Function, preserve: bool, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a function: without gradients where none of its arguments needs one, as the framework does."""
        needed = self.again_later(function, preserve, args, kwargs)
        with self._home.set_grad_enabled(self._home.is_grad_enabled() and needed):
            return handed_on(function, args, kwargs)

    def again_later(self, function: Function, preserve: bool, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Run a function again once a gradient reaches its arguments; return whether one can.

        With ``preserve`` it draws the random numbers that it drew at first.
        """
        global _seen
        _seen += 1
        given = self._differentiable((*args, *kwargs.values()))
        if given and self._home.is_grad_enabled():
            random = self._home.get_rng_state() if preserve else None
            todo = [lambda: self._again(function, args, kwargs, random)]
            given[0].register_hook(lambda _: todo.pop()() if todo else None)
        return bool(given)

    def _again(self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any], random: Any) -> None:
        read, write = self._home.get_rng_state, self._home.set_rng_state
        with nullcontext() if random is None else switched(read, write, random), self._home.no_grad():
            handed_on(function, args, kwargs)
