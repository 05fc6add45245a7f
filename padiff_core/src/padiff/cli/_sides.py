"""Build both sides of a diff, each where it was asked to run, and find what belongs to a side there."""

from __future__ import annotations

import argparse
import contextlib
from typing import TYPE_CHECKING, Any

from padiff.cli._order import import_in_order
from padiff.cli._parser import number
from padiff.import_string import SpecError, called, guarded, load, parameters

if TYPE_CHECKING:
    from padiff.isolation import Remote


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options that say where a side runs."""
    for side in ("reference", "candidate"):
        text = f"run the {side} in a process of its own, by this interpreter or environment"
        parser.add_argument(f"--{side}-python", metavar="PYTHON", help=text)
    text = "seconds without an answer after which such a process counts as hanging (default: wait)"
    parser.add_argument("--timeout", metavar="N", type=number(), help=text)


class Sides:
    """The two models, native or remote; ``stack`` ends the processes of the remote ones."""

    def __init__(self, arguments: argparse.Namespace, stack: contextlib.ExitStack) -> None:
        self._specs = arguments.reference, arguments.candidate
        pythons = arguments.reference_python, arguments.candidate_python
        self._remotes = [
            None if python is None else _started(spec, python, arguments.timeout, stack)
            for spec, python in zip(self._specs, pythons, strict=True)
        ]
        import_in_order([spec for spec, remote in zip(self._specs, self._remotes, strict=True) if remote is None])
        self.models = self._model(0), self._model(1)

    def _model(self, side: int) -> Any:
        remote = self._remotes[side]
        return called(self._specs[side]) if remote is None else remote

    @property
    def remote(self) -> bool:
        """Return whether a side runs elsewhere."""
        return any(remote is not None for remote in self._remotes)

    def value(self, spec: str, side: int) -> Any:
        """Return what a SPEC gives, loaded where that side runs: its file may import that side's framework."""
        remote = self._remotes[side]
        return called(spec) if remote is None else remote.load(spec)

    def loss(self, spec: str) -> Any:
        """Return the loss, or the SPEC itself, for each side to load."""
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
        self._spec = spec
        self._remote = None if python is None else _started(spec, python, timeout, stack)
        self._model: Any = None

    def model(self) -> Any:
        """Return the model."""
        if self._model is None:
            self._model = called(self._spec) if self._remote is None else self._remote
        return self._model

    def value(self, spec: str) -> Any:
        """Return what a SPEC gives, loaded where the model runs."""
        return called(spec) if self._remote is None else self._remote.load(spec)

    def loss(self, spec: str) -> Any:
        """Return the loss, or the SPEC itself, to be loaded where the model runs."""
        return spec if self._remote is not None else loss_of(spec)

    def optimizer(self, spec: str) -> Any:
        """Return the optimizer that a function makes of the model, or the SPEC itself."""
        if self._remote is not None:
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
