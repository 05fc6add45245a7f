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
├── MappingError            a LayerMap, or a mapping file, names what is in neither model
├── LiftError               a module cannot run in a wider type
├── WorkerError             a remote model's process did not start, died, or does not answer
└── InternalError           padiff's own code failed, or an adapter's: this says nothing of the model

A message says what was seen, what was expected or exists, and then ``Hint:`` and the next step.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

__all__ = [
    "AdapterError",
    "BackwardError",
    "ForwardError",
    "InputError",
    "InternalError",
    "InternalWarning",
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
    """The base of every error that padiff raises on purpose."""


class AdapterError(PadiffError):
    """A framework's plugin that is missing, broken or in conflict with another."""


class UnknownModel(AdapterError):
    """A model whose class no adapter claims."""


class MissingFramework(AdapterError):
    """An adapter that is installed, while its framework is not."""


class UnwatchableModel(AdapterError):
    """A model on which hooks would be silently ignored (compiled or traced)."""


class NotOffered(AdapterError):
    """A capability that was asked for, and that the adapter does not offer."""


class PluginError(PadiffError):
    """A plugin's metric, special transfer or renderer that cannot do what was asked of it."""


class InputError(PadiffError):
    """Inputs that do not fit the model, or hold nothing to compare."""


class ForwardError(PadiffError):
    """A model that raised while it ran; the model's own error is the cause."""


class BackwardError(ForwardError):
    """A model that ran forward and raised in the backward pass."""


class UnusableReference(PadiffError):
    """A reference that nothing can be compared with: NaN or Inf, or no tensor in its output."""


class MappingError(PadiffError):
    """A LayerMap, or a mapping file, that names something that is in neither model, or is none."""


class LiftError(PadiffError):
    """A module that cannot be moved to, or run in, a wider type."""


class WorkerError(PadiffError):
    """A process that did not start, died, or does not answer: a remote model's, or one of an executor."""


class InternalError(PadiffError):
    """A fault of padiff's own code or of an adapter's, with this version of the framework; not of a model."""


class RemoteError(Exception):
    """What a remote model's code raised in its process: the same class name, the same text.

    ``line`` is ``file:line`` of the user's innermost frame there, ``core`` that of padiff's own where this raised it
    itself; its traceback is in the notes.
    """

    line: str | None = None
    core: str | None = None


class InternalWarning(RuntimeWarning):
    """A fault of padiff's own code in a run that it tried beside the others: the report rests on these."""


class PluginWarning(UserWarning):
    """A plugin that was left out, or two in conflict; the others work."""


def did_you_mean(word: str, known: Iterable[str], form: str = "{!r}", *, most: int = 1) -> str:
    """Return a question that names what a mistyped word is nearest to, in some form; nothing where nothing is near."""
    import difflib  # for what is mistyped alone

    near = difflib.get_close_matches(word, dict.fromkeys(known), most)
    return f"did you mean {', '.join(map(form.format, near))}?" if near else ""


def check_one_of(name: str, value: object, known: Collection[str]) -> None:
    """Raise `InputError` where an argument of a name is none of the words that it may be."""
    if value not in known:
        msg = f"{name} is {value!r}.\nHint: one of {', '.join(map(repr, known))}."
        raise InputError(msg)
