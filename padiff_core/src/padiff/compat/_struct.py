"""Draw a model's tree as the documents do, with the place of the first difference marked."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from padiff.grouping import grouped
from padiff.paths import last, parent, upwards
from padiff.trace import Description, ModuleDescription

HERE = "    <---  *** HERE ***"
MOST = 60
"""Up to so many modules are drawn; of a larger tree, when it is printed, only what is around the mark."""

Tree = Mapping[str, list[str]]
Modules = Mapping[str, ModuleDescription]


def net_id(model: Description, path: str | None) -> str:
    """Return the number of a module in the model's tree, the root's 0, in the order of definition."""
    paths = list(model.modules)
    return str(paths.index(path)) if path in paths else "-"


def struct(model: Description, title: str, here: str | None, *, whole: bool) -> Iterator[str]:
    """Yield the lines of a model's tree, the module ``here`` marked; without ``whole`` a large one is cut short."""
    modules = model.modules
    children = grouped(filter(None, modules), lambda path: parent_of(path, modules))
    shown = None if whole or len(modules) <= MOST else _around(here or "", modules, children)
    yield title
    yield "=" * 40
    yield "    " + _label(modules, "", here)
    yield from _below(modules, children, "", "     ", here, shown)


def _below(
    modules: Modules,
    children: Tree,
    top: str,
    indent: str,
    here: str | None,
    shown: set[str] | None,
) -> Iterator[str]:
    paths = children.get(top, [])
    seen = [path for path in paths if shown is None or path in shown]
    for path in seen:
        last = path == seen[-1] and len(seen) == len(paths)
        yield f"{indent}{'+' if last else '|'}--- {_label(modules, path, here)}"
        yield from _below(modules, children, path, indent + ("      " if last else "|     "), here, shown)
    if 0 < len(seen) < len(paths):
        yield f"{indent}+--- ... ({len(paths) - len(seen)} more)"


def _label(modules: Modules, path: str, here: str | None) -> str:
    name = modules[path].module.class_name.rpartition(".")[2]
    own = f" ({last(path)})" if path else ""
    return f"{name}{own}{HERE if path == here else ''}"


def parent_of(path: str, modules: Collection[str]) -> str:
    """Return the nearest path above that is a module."""
    return next(above for above in upwards(parent(path)) if above in modules)


def _around(here: str, modules: Modules, children: Tree) -> set[str]:
    """Return the modules from the root to a place, what is beside it, and what is right below it."""
    found = {here, *children.get(here, ())}
    if here:
        found.update(children.get(parent_of(here, modules), ()))
    while here:
        here = parent_of(here, modules)
        found.add(here)
    return found
