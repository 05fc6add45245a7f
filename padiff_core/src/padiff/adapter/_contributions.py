"""Define what a plugin may contribute beside adapters: metrics, special transfers, renderers, readers.

Each is frozen data with a name and a function. ``api`` is the version of the interface that it was written for
(`padiff.API_VERSION` then), as a plain number: another one is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import attrs

from padiff.numerics import Array

if TYPE_CHECKING:
    from pathlib import Path

    from padiff.report import Report
    from padiff.trace import Run

Arrays = Mapping[str, Array]

_SIDES = ("smaller", "larger")
_TAKES = ("arrays", "modules")


def _named(_: Any, field: attrs.Attribute[str], value: Any) -> None:
    if not isinstance(value, str) or not value or value != value.strip():
        msg = f"{field.name} is {value!r}; expected a text without blanks at its ends"
        raise ValueError(msg)


def _callable(_: Any, field: attrs.Attribute[Any], value: Any) -> None:
    if not callable(value):
        msg = f"{field.name} is {value!r}; expected a function"
        raise TypeError(msg)


def _one_of(choices: tuple[str, ...]) -> Callable[[Any, attrs.Attribute[str], Any], None]:
    def check(_: Any, field: attrs.Attribute[str], value: Any) -> None:
        if value not in choices:
            msg = f"{field.name} is {value!r}; expected one of {', '.join(map(repr, choices))}"
            raise ValueError(msg)

    return check


def _texts(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(values)


def _first_line(function: Any) -> str:
    lines = (getattr(function, "__doc__", None) or "").strip().splitlines()
    return lines[0] if lines else ""


_FUNCTION_DOC = attrs.Factory(lambda self: _first_line(self.function), takes_self=True)


@attrs.frozen
class Metric:
    """A measure of how far a candidate's array is from the reference's.

    ``function(reference, candidate)`` gets two read-only numpy arrays of one shape, each in its framework's own
    dtype (bfloat16 and float8 as ``ml_dtypes``), and returns a number; it must keep neither. ``better`` says
    whether a ``smaller`` or a ``larger`` value is nearer to the reference; ``limit`` is the value at which two
    arrays just pass, if the metric has one: it decides where a user chooses this metric as the tolerance, and
    nowhere else. ``unit`` is shown behind the value, ``doc`` in lists (by default the function's first line).
    """

    name: str = attrs.field(validator=_named)
    function: Callable[[Array, Array], float] = attrs.field(validator=_callable)
    better: str = attrs.field(default="smaller", validator=_one_of(_SIDES), kw_only=True)
    limit: float | None = attrs.field(default=None, kw_only=True)
    unit: str = attrs.field(default="", kw_only=True)
    doc: str = attrs.field(default=_FUNCTION_DOC, kw_only=True)
    api: int = attrs.field(default=1, kw_only=True)

    def passes(self, value: float) -> bool | None:
        """Return whether a value is within the limit, None where there is none; NaN never is."""
        if self.limit is None:
            return None
        return bool(value <= self.limit if self.better == "smaller" else value >= self.limit)


@attrs.frozen
class Renderer:
    """A format that a report can be written in: ``function(report)`` returns the text.

    ``name`` is what ``report.render(name)`` and ``padiff diff --format NAME`` take; ``suffixes`` (``".html"``) are
    the endings of a file's name that choose it; ``doc`` is shown in lists (by default the function's first line).
    """

    name: str = attrs.field(validator=_named)
    function: Callable[[Report], str] = attrs.field(validator=_callable)
    suffixes: tuple[str, ...] = attrs.field(default=(), converter=_texts, kw_only=True)
    doc: str = attrs.field(default=_FUNCTION_DOC, kw_only=True)
    api: int = attrs.field(default=1, kw_only=True)

    @suffixes.validator
    def _dotted(self, _: Any, value: tuple[str, ...]) -> None:
        wrong = [suffix for suffix in value if not (isinstance(suffix, str) and suffix.startswith("."))]
        if wrong:
            msg = f"suffixes has {wrong[0]!r}; expected endings such as '.html'"
            raise ValueError(msg)


@attrs.frozen
class Reader:
    """What reads the runs that another tool recorded: ``function(path)`` returns the run as plain data.

    ``recognizes(path)`` says, from names alone and without an error, whether a path is of this tool. ``function``
    raises `padiff.InputError` for what is damaged, and executes nothing that it reads. ``name`` and ``doc`` are shown
    in lists.
    """

    name: str = attrs.field(validator=_named)
    function: Callable[[Path], Run] = attrs.field(validator=_callable)
    recognizes: Callable[[Path], bool] = attrs.field(validator=_callable)
    doc: str = attrs.field(default=_FUNCTION_DOC, kw_only=True)
    api: int = attrs.field(default=1, kw_only=True)


@attrs.frozen
class SpecialTransfer:
    """How the parameters of one class of module become those of another, where no table can say it.

    ``reference`` and ``candidate`` are patterns (of `fnmatch`) of class names, qualified or not: ``Attention``,
    ``my_port.Attention``, ``*Attention``; ``frameworks`` may name the adapters of both sides, None for any. What is
    below such a module belongs to it.

    ``function(arrays)`` gets all parameters and buffers of the reference's module by their dotted names below it, as
    read-only arrays in the framework's own layout, and returns those of the candidate's module in the same way; what
    it leaves out is not copied, and reported. With ``takes="modules"`` it is called with both native modules instead
    and writes the candidate's parameters itself.

    Where the function only rearranges (transposes, splits, stacks, permutes), padiff finds that out and compares
    gradients too. Otherwise ``gradients(arrays)`` gives, of the reference's gradients by name, those that the
    candidate must have; without it they are not compared, and the report says so.
    """

    reference: str = attrs.field(validator=_named)
    candidate: str = attrs.field(validator=_named)
    function: Callable[..., Any] = attrs.field(validator=_callable)
    gradients: Callable[[Arrays], Arrays] | None = attrs.field(
        default=None, validator=attrs.validators.optional(_callable), kw_only=True
    )
    frameworks: tuple[str | None, str | None] = attrs.field(default=(None, None), kw_only=True)
    takes: str = attrs.field(default="arrays", validator=_one_of(_TAKES), kw_only=True)
    name: str = attrs.field(
        default=attrs.Factory(lambda self: f"{self.reference} -> {self.candidate}", takes_self=True),
        validator=_named,
        kw_only=True,
    )
    doc: str = attrs.field(default=_FUNCTION_DOC, kw_only=True)
    api: int = attrs.field(default=1, kw_only=True)

    def fits(self, side: int, framework: str, class_name: str) -> bool:
        """Return whether a module of a class is on its ``side``: 0 the reference's, 1 the candidate's."""
        pattern = (self.reference, self.candidate)[side]
        return self.frameworks[side] in (None, framework) and (
            fnmatchcase(class_name, pattern) or fnmatchcase(class_name, f"*.{pattern}")
        )


Contribution = Metric | Reader | Renderer | SpecialTransfer
