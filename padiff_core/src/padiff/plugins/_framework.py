"""List the frameworks that are known by name: what to install for each, and whether it is installed."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
from importlib.machinery import PathFinder

import attrs

from padiff.adapter import AdapterInfo


@attrs.frozen
class Framework:
    """The distributions of a framework, the usual one first, and that of padiff's adapter for it."""

    distributions: tuple[str, ...]
    adapter: str | None = None


FRAMEWORKS = {
    "torch": Framework(("torch",), "padiff-torch"),
    "paddle": Framework(("paddlepaddle", "paddlepaddle-gpu", "paddlepaddle-xpu"), "padiff-paddle"),
    "mindspore": Framework(("mindspore",), "padiff-mindspore"),
    **{name: Framework((name,)) for name in ("flax", "equinox", "jax", "keras", "tensorflow", "mlx")},
}
"""Top-level package -> what is known of it. A third party's framework need not be listed."""


def principal(info: AdapterInfo) -> str:
    """Return which of an adapter's roots is the framework itself; the others build on it."""
    roots = sorted(info.roots)
    return next((root for root in (info.name, *FRAMEWORKS, *roots) if root in roots), info.name)


def findable(root: str) -> bool:
    """Return whether a top-level package could be imported, without importing it.

    The path is asked before `sys.modules`, where a proxy may stand for a framework that is not there. A bare
    folder of that name (a namespace package) is no framework.
    """
    try:
        spec = PathFinder.find_spec(root) or importlib.util.find_spec(root)
    except (ImportError, ValueError):
        return root in sys.modules
    return spec is not None and spec.origin is not None


def version_of(root: str) -> str | None:
    """Return the version of the framework behind a top-level package, without importing it."""
    known = FRAMEWORKS.get(root)
    for name in (*(known.distributions if known else ()), root):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    version = getattr(sys.modules.get(root), "__version__", None)
    return version if isinstance(version, str) else None
