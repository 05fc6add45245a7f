"""Every error that padiff raises on purpose.

PadiffError
├── AdapterError            a framework's plugin is missing, broken or in conflict
│   ├── UnknownModel        no adapter claims the model's class
│   ├── MissingFramework    an adapter is there, its framework is not
│   ├── UnwatchableModel    hooks would be ignored (compiled, traced)
│   └── NotOffered          the adapter lacks a capability (gradients, ...)
├── PluginError             what a plugin contributed raised, or two claim one name
├── InputError              the inputs do not fit the model, or hold nothing to compare
├── ForwardError            a model raised while it ran
│   └── BackwardError       it raised in the backward pass
├── UnusableReference       the reference is not usable (NaN or Inf, no tensor in its output)
├── MappingError            a LayerMap names what is in neither model
├── LiftError               a module cannot run in a wider type
└── WorkerError             a remote model's process did not start, died, or does not answer

A message says what was seen, what was expected or exists, and then ``Hint:`` and the next step.
"""

from __future__ import annotations

__all__ = [
    "AdapterError",
    "BackwardError",
    "ForwardError",
    "InputError",
    "LiftError",
    "MappingError",
    "MissingFramework",
    "NotOffered",
    "PadiffError",
    "PluginError",
    "PluginWarning",
    "RemoteError",
    "UnknownModel",
    "UnusableReference",
    "UnwatchableModel",
    "WorkerError",
]


class PadiffError(Exception):
    """Be the base of every error that padiff raises on purpose."""


class AdapterError(PadiffError):
    """Say that a framework's plugin is missing, broken or in conflict with another."""


class UnknownModel(AdapterError):
    """Say that no adapter claims the model's class."""


class MissingFramework(AdapterError):
    """Say that an adapter is installed and its framework is not."""


class UnwatchableModel(AdapterError):
    """Say that hooks on this model would be silently ignored (compiled or traced)."""


class NotOffered(AdapterError):
    """Say that an adapter was asked for a capability that it does not offer."""


class PluginError(PadiffError):
    """Say that a plugin's metric, special transfer or renderer cannot do what was asked of it."""


class InputError(PadiffError):
    """Say that the inputs do not fit the model, or hold nothing to compare."""


class ForwardError(PadiffError):
    """Say that a model raised while it ran; the model's own error is the cause."""


class BackwardError(ForwardError):
    """Say that a model ran forward and raised in the backward pass."""


class UnusableReference(PadiffError):
    """Say that the reference cannot serve: NaN or Inf, or no tensor in its output."""


class MappingError(PadiffError):
    """Say that a LayerMap names something that is in neither model."""


class LiftError(PadiffError):
    """Say that a module cannot be moved to, or run in, a wider type."""


class WorkerError(PadiffError):
    """Say that the process of a remote model did not start, died, or does not answer."""


class RemoteError(Exception):
    """Stand for what a remote model's code raised in its process: the same class name, the same text.

    ``line`` is ``file:line`` of the user's innermost frame there; its traceback is in the notes.
    """

    line: str | None = None


class PluginWarning(UserWarning):
    """Say that a plugin was left out, or that two stand in each other's way; the others work."""
