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

OFFERS: Mapping[str, Offer] = {
    "has_aux": Offer(
        "common.api._pynative_executor.grad",
        reason="what value_and_grad drives: it is called here for the graph that it lets go of",
        parameter="has_aux",
    ),
    "casts": Offer(
        "_c_expression.amp.get_curr_amp_strategy",
        reason="which automatic casts are on has no public name",
        without="calls under automatic casts are replayed without them",
    ),
    "compiled": Offer(
        "common.api._JitExecutor",
        reason="that a compiled function runs shows nowhere else, and it may draw random numbers",
        without="one that draws seldom may seem to give the same under every seed",
    ),
    "mint_dropout": Offer(
        "ops.auto_generate.gen_ops_prim.FuncDropoutExt",  # it turns the generator also where it drops nothing
        without="a dropout that drops nothing runs under as many seeds as one that does",
    ),
    "generator_step": Offer("ops.function.nn_func.generator_step_"),
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

PRIVATE: Mapping[str, str] = {
    "_cells": "name_cells() tells a cell that hangs under two names once",
    "_params": "parameters_and_names() tells a parameter under its own name, which need not be its path",
    "_buffers": "as _params",
    "_primitives": "which operations a cell holds has no public name",
    "_recompute_cell": "what recompute() puts beside a cell's children has no public name",
    "_executor": "whether a backward pass is going on has no public name",
    "_Function": "a function with a backward of its own, outside of a graph, has no public name",
    "_grad_function": "where it stands",
    "_grad": "where the backward pass from a tensor adds up its gradient",
    "_grad_node": "which operation made a tensor has no public name",
    "_sequence_nr": "of such an operation, what tells it from all others",
    "_requires_grad": "whether a gradient can reach a tensor that is no parameter has no public name",
    "_OutputTo16": "the cell with which amp casts back has no public name",
    "_version": "the count of changes in place has no public name",
    "_GLOBAL_SEED": "set_seed() cannot take back that no seed was set",
    "_KERNEL_SEED": "the seeds of operations, which set_seed() forgets, have no public name",
    **dict.fromkeys(("_reset_op_seed", "_get_graph_seed"), "as _KERNEL_SEED"),
    "_get_logger": "the level of MindSpore's log is public as an environment variable alone, which is read once",
}
"""Names that the adapter reads wherever it meets a cell or a tensor -> why; all versions have them."""

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

    def casts(self) -> Any:
        """Return the rule of the automatic casts that are on now, None where none are."""
        current = self.held["casts"]
        return None if current is None else current()

    def compiler(self, file: str) -> str | None:
        """Return the name of MindSpore's file where code in it compiles what it wraps."""
        name = os.path.basename(file)
        return name if file.startswith(self._compiling) and name in _COMPILERS else None


MINDSPORE = MindSpore()
"""The one that is installed."""
