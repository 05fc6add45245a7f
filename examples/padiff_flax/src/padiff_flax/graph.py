"""Walk what a Flax NNX module holds, in the order in which it was assigned."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from flax import nnx

from padiff.adapter import walk


def nodes(root: Any) -> Iterator[tuple[str, Any]]:
    """Yield (path, node) for every NNX object below ``root`` and itself, once, parents first."""
    seen: set[int] = set()
    for path, value in walk(root, _items):
        if isinstance(value, nnx.Pytree) and id(value) not in seen:
            seen.add(id(value))
            yield path, value


def modules(root: Any) -> Iterator[tuple[str, nnx.Module]]:
    """Yield (path, module) for every module once, by its first path."""
    return ((path, node) for path, node in nodes(root) if isinstance(node, nnx.Module))


def variables(root: Any) -> Iterator[tuple[str, nnx.Variable[Any]]]:
    """Yield (path, variable) for every variable, under each of its paths."""
    return ((path, value) for path, value in walk(root, _items) if isinstance(value, nnx.Variable))


def _items(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, nnx.Variable):
        return
    if isinstance(value, nnx.Pytree):
        yield from ((name, item) for name, item in list(vars(value).items()) if not name.startswith("_pytree__"))
    elif isinstance(value, Mapping):
        yield from ((str(key), item) for key, item in value.items())
    elif isinstance(value, list | tuple):
        yield from ((str(index), item) for index, item in enumerate(value))
