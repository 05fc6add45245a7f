"""Stand where scripts written for PaDiff 0.3 look for its dumps."""

from __future__ import annotations

import os

from padiff.compat import ProxyModel, get_dump_root_path, set_dump_root_path

__all__ = ["dump_grads", "dump_params", "dump_report", "dump_weights", "get_dump_root_path", "set_dump_root_path"]

Path = str | os.PathLike[str]


def dump_report(model: ProxyModel, dump_path: Path) -> None:
    """Write what was recorded of a wrapped model."""
    model.dump_report(dump_path)


def dump_params(model: ProxyModel, path: Path) -> None:
    """Write a wrapped model's parameters and their gradients."""
    model.dump_params(path)


def dump_weights(model: ProxyModel, path: Path) -> None:
    """Write a wrapped model's parameters."""
    model.dump_weights(path)


def dump_grads(model: ProxyModel, path: Path) -> None:
    """Write the gradients of a wrapped model's parameters."""
    model.dump_grads(path)
