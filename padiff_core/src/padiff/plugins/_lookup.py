"""Find a metric or a renderer by its name, or by the ending of a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from padiff.adapter import Reader, Renderer
from padiff.errors import InputError, PluginError, did_you_mean
from padiff.plugins._hooks import failure
from padiff.plugins._registry import Row, conflict, registry

if TYPE_CHECKING:
    from padiff.report import Report


def contributions(hook: str) -> list[Row]:
    """Return what a hook gave and can be used: neither broken nor of a name that two claim; padiff's own first."""
    found = registry()
    return [row for row in found.of_hook(hook) if not found.rivals(row)]


def find(hook: str, name: str) -> Row:
    """Return what a hook gave under a name.

    Raises `InputError` where there is nothing of that name, `PluginError` where two plugins claim it.
    """
    found = registry()
    rows = [row for row in found.of_hook(hook) if row.name == name]
    if len(rows) == 1:
        return rows[0]
    if rows:
        raise PluginError(conflict(name, rows))
    broken = [row for row in found.all if row.hook == hook and row.name == name and row.broken]
    noun = _NOUNS[hook]
    if broken:
        msg = f"the {noun} {broken[0].label} cannot be used: {broken[0].broken}.\nHint: {_known(hook)}."
        raise PluginError(msg)
    meant = did_you_mean(name, [row.name for row in contributions(hook)])
    msg = f"there is no {noun} {name!r}.\nHint: {_known(hook)}{f'; {meant}' if meant else '.'}"
    raise InputError(msg)


_NOUNS = {"padiff_metrics": "metric", "padiff_renderers": "format"}


def _known(hook: str) -> str:
    names = [row.name for row in contributions(hook)]
    return f"one of {', '.join(map(repr, names))}; `padiff plugins` lists what is installed"


def readers() -> list[Reader]:
    """Return what reads the runs that other tools recorded; padiff's own first."""
    return [row.item for row in contributions("padiff_readers")]


def renderer(name: str) -> Row:
    """Return the renderer of a format; raises as `find`."""
    return find("padiff_renderers", name)


def renderer_for(file: str) -> Row:
    """Return the renderer that the ending of a file's name chooses; raises `InputError` where none or several do."""
    rows = contributions("padiff_renderers")
    fitting = [row for row in rows if file.endswith(_suffixes(row))]
    if len(fitting) == 1:
        return fitting[0]
    known = ", ".join(f"{suffix} ({row.name})" for row in rows for suffix in _suffixes(row))
    seen = f"{len(fitting)} formats have the ending of {file!r}" if fitting else f"no format has the ending of {file!r}"
    msg = f"{seen}; known are {known}.\nHint: name the format too; `padiff plugins` lists them."
    raise InputError(msg)


def _suffixes(row: Row) -> tuple[str, ...]:
    return row.item.suffixes if isinstance(row.item, Renderer) else ()


def rendered(report: Report, row: Row) -> str:
    """Return a report as a renderer writes it; raises `PluginError` where the renderer fails."""
    try:
        text = row.item.function(report)
    except Exception as error:
        msg = f"the renderer {row.label} {failure(error)}.\nHint: {_OTHERS.format(row.distribution)}"
        raise PluginError(msg) from error
    if isinstance(text, str):
        return text
    msg = f"the renderer {row.label} gave a {type(text).__qualname__}; expected a str.\n"
    raise PluginError(msg + f"Hint: {_OTHERS.format(row.distribution)}")


_OTHERS = "tell the author of {}; the other formats work."
