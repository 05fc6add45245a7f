"""Know what the installed MindSpore offers: the one room of this adapter that knows that versions differ.

What differs is looked for, never concluded from a version's number. Of MindSpore's private interfaces those stand here
that not every version has, each with its reason, and with what padiff does where it is gone.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from typing import Any

import mindspore
import mindspore.common.api

from padiff.adapter import Offer, Offers

__all__ = ["MINDSPORE", "NEEDED", "OFFERS", "OLDEST", "MindSpore"]

OFFERS: Mapping[str, Offer] = {
    "has_aux": Offer(
        "common.api._pynative_executor.grad",
        reason="what value_and_grad drives: it is called here for the graph that it lets go of",
        parameter="has_aux",
    ),
}
"""What versions differ in, by the name under which the rest asks for it."""

NEEDED: Mapping[str, str | None] = {
    "_c_expression.run_backward": None,
    "common.api._pynative_executor": None,
    "nn.Cell.register_forward_pre_hook": "with_kwargs",
    "nn.Cell.register_forward_hook": "with_kwargs",
}
"""Something below ``mindspore`` -> what it must take, if anything: without it padiff cannot work at all.

The first two are private: ``value_and_grad`` gives zeros where no gradient arrives, and sees no keyword arguments.
"""
OLDEST = "2.8"

_COMPILERS = ("api.py", "jit_trace.py", "pijit_context.py", "_pijit_context.py")
"""Files of MindSpore whose decorators compile, beside or below the one with ``mindspore.jit``; it moved in 2.9."""


class MindSpore(Offers):
    """What one version of MindSpore offers, as the rest of the adapter asks for it."""

    def __init__(self, home: Any = mindspore) -> None:
        super().__init__("mindspore", home, OFFERS, NEEDED, OLDEST)
        self.executor = home.common.api._pynative_executor
        """What MindSpore's own value_and_grad drives; it moved in 2.9, and the old name stayed."""
        self._compiling = os.path.join(os.path.dirname(inspect.unwrap(home.jit).__code__.co_filename), "")

    def grad(self, function: Callable[..., Any], by_input: Any, value: Any) -> None:
        """Run the graph of a function backward, by its one input."""
        aux = () if self.held["has_aux"] is None else (False,)
        self.executor.grad(function, by_input, None, None, *aux, value)

    def compiler(self, file: str) -> str | None:
        """Return the name of MindSpore's file where code in it compiles what it wraps."""
        name = os.path.basename(file)
        return name if file.startswith(self._compiling) and name in _COMPILERS else None


MINDSPORE = MindSpore()
"""The one that is installed."""
