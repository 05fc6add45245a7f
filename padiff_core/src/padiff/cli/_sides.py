"""Build both sides of a diff, each where it was asked to run, and find what belongs to a side there."""

from __future__ import annotations

import argparse
import contextlib
from typing import TYPE_CHECKING, Any

from padiff.cli._order import import_in_order
from padiff.cli._parser import UsageError, number
from padiff.import_string import SpecError, called, guarded, load, parameters

if TYPE_CHECKING:
    from padiff.isolation import Remote


def add_arguments(parser: argparse.ArgumentParser, *sides: str) -> None:
    """Declare the options that say where each of the ``sides`` runs."""
    for side in sides:
        text = f"run the {side} in a process of its own, by this interpreter or environment"
        parser.add_argument(f"--{side}-python", metavar="PYTHON", help=text)
    text = "seconds without an answer after which such a process counts as hanging (default: wait)"
    parser.add_argument("--timeout", metavar="N", type=number(), help=text)


def check(arguments: argparse.Namespace, *sides: str) -> None:
    """Raise `UsageError` where processes get a timeout, and none of the ``sides`` runs in one of its own."""
    options = [f"--{side}-python" for side in sides]
    if arguments.timeout is not None and all(getattr(arguments, f"{side}_python") is None for side in sides):
        msg = "--timeout is for a model in a process of its own, and no model has one.\n"
        msg += f"Hint: {' or '.join(options)} PYTHON, or leave --timeout out."
        raise UsageError(msg)


class Sides:
    """The two models, native or remote; ``stack`` ends the processes of the remote ones."""

    def __init__(self, arguments: argparse.Namespace, stack: contextlib.ExitStack) -> None:
        self.reference = Built(arguments.reference, arguments.reference_python, arguments.timeout, stack)
        self.candidate = Built(arguments.candidate, arguments.candidate_python, arguments.timeout, stack)
        both = self.reference, self.candidate
        import_in_order([side.spec for side in both if side.remote is None])
        self.remote = any(side.remote is not None for side in both)
        """Whether a side runs elsewhere."""
        self.models = self.reference.model(), self.candidate.model()

    def given(self, arguments: argparse.Namespace) -> tuple[Any, dict[str, Any]]:
        """Return the inputs, and beside them the candidate's and the mapping, as far as a command line names them."""
        inputs, optional = self.reference.value(arguments.inputs), dict[str, Any]()
        if arguments.candidate_inputs:
            optional["candidate_inputs"] = self.candidate.value(arguments.candidate_inputs)
        if arguments.mapping:
            optional["mapping"] = mapping_of(arguments.mapping)
        return inputs, optional

    def loss(self, spec: str) -> Any:
        """Return the loss, one of each side where two are named, or what names them, for each side to load."""
        both = spec.split(",")
        if len(both) == 2:
            return tuple(both) if self.remote else tuple(map(loss_of, both))
        return spec if self.remote else loss_of(spec)

    def optimizers(self, spec: str) -> Any:
        """Return both optimizers, or a SPEC of each, for each side to load."""
        parts = spec.split(",")
        if len(parts) == 2:
            return tuple(parts)
        if self.remote:
            msg = f"--optimizers {spec} is one SPEC, and the models are in different processes.\n"
            msg += "Hint: name two, for the reference and the candidate, each a function of its model: A:f,B:f."
            raise SpecError(msg)
        value = load(spec)
        if not callable(value):
            return value
        names = ", ".join(parameters(value))
        if len(parameters(value)) != 2:
            msg = f"{spec} takes ({names}); expected a function of (reference, candidate), the two models.\n"
            msg += "Hint: return a tuple from it, an optimizer for each."
            raise SpecError(msg)
        return guarded(spec, value, *self.models)


class Built:
    """One model, native or remote, and what belongs to it; ``stack`` ends the process of a remote one."""

    def __init__(self, spec: str, python: str | None, timeout: float | None, stack: contextlib.ExitStack) -> None:
        self.spec = spec
        self.remote = None if python is None else _started(spec, python, timeout, stack)
        self._model: Any = None

    def model(self) -> Any:
        """Return the model."""
        if self._model is None:
            self._model = called(self.spec) if self.remote is None else self.remote
        return self._model

    def value(self, spec: str) -> Any:
        """Return what a SPEC gives, loaded where the model runs: its file may import that side's framework."""
        return called(spec) if self.remote is None else self.remote.load(spec)

    def loss(self, spec: str) -> Any:
        """Return the loss, or the SPEC itself, to be loaded where the model runs."""
        return spec if self.remote is not None else loss_of(spec)

    def optimizer(self, spec: str) -> Any:
        """Return the optimizer that a function makes of the model, or the SPEC itself."""
        if self.remote is not None:
            return spec
        value = load(spec)
        if not callable(value):
            return value
        return guarded(spec, value, *([self.model()] if parameters(value) else []))


def loss_of(spec: str) -> Any:
    """Return the loss that a SPEC names, or makes."""
    value = load(spec)
    # A function with parameters is the loss, and does not build it.
    is_loss = callable(value) and not isinstance(value, type) and parameters(value)
    return value if is_loss else called(spec)


def mapping_of(named: str) -> Any:
    """Return the name of a mapping file as it is, or what a SPEC gives."""
    return named if named.endswith((".yaml", ".yml")) else called(named)


def _started(spec: str, python: str, timeout: float | None, stack: contextlib.ExitStack) -> Remote:
    from padiff.isolation import remote

    found = stack.enter_context(remote(spec, python, timeout=timeout))
    found.launch()  # it imports its framework while this process goes on
    return found
