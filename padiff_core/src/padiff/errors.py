"""Every error that padiff raises on purpose.

PadiffError
├── AdapterError            a framework's plugin is missing, broken or in conflict
│   ├── UnknownModel        no adapter claims the model's class
│   ├── MissingFramework    an adapter is there, its framework is not
│   ├── UnwatchableModel    hooks would be ignored (compiled, traced)
│   └── NotOffered          the adapter lacks a capability (gradients, ...)
├── InputError              the inputs do not fit the model, or hold nothing to compare
├── ForwardError            a model raised while it ran
│   └── BackwardError       it raised in the backward pass
├── UnusableReference       the reference is not usable (NaN or Inf, no tensor in its output)
├── MappingError            a LayerMap names what is in neither model
└── LiftError               a module cannot run in a wider type

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
    "PluginWarning",
    "UnknownModel",
    "UnusableReference",
    "UnwatchableModel",
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


class PluginWarning(UserWarning):
    """Say that a plugin was left out, or that two stand in each other's way; the others work."""
