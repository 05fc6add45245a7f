"""Load an adapter, and with it its framework, and say whose fault it is when that fails."""

from __future__ import annotations

import pkgutil
import sys
import traceback
import warnings
from typing import Any

from padiff.adapter import Adapter, AdapterInfo
from padiff.errors import AdapterError, MissingFramework, PluginWarning
from padiff.plugins._framework import FRAMEWORKS, principal
from padiff.plugins._hooks import failure, why_unusable
from padiff.plugins._registry import Row, registry


def load(info: AdapterInfo) -> Adapter:
    """Return the adapter; its factory, and with it the framework, is imported on first use.

    Raises `MissingFramework` where the framework is not there or does not import, `AdapterError` where the
    adapter itself fails; the error behind it is the cause.
    """
    row = _row(info)
    if row.adapter is not None:
        return row.adapter
    early = _too_early(info)
    if early:
        warnings.warn(f"{early}\nHint: {_order(info)}", PluginWarning, stacklevel=2)
    try:
        row.adapter = _made(info, early)
    except AdapterError as error:
        row.failed, row.missing = str(error).partition("\nHint:")[0], isinstance(error, MissingFramework)
        raise
    row.failed, row.missing = None, False
    return row.adapter


def _row(info: AdapterInfo) -> Row:
    found = registry()
    for row in found.adapters:
        if row.info == info and row.broken is None:
            return row
    return found.unannounced.setdefault(info, Row(info.name, info.factory, None, item=info))


def _made(info: AdapterInfo, early: str | None) -> Adapter:
    reason = why_unusable(info)
    if reason:
        msg = f"the adapter {info.name!r} cannot be used: {reason}.\n"
        msg += "Hint: upgrade padiff-core and the adapter together."
        raise AdapterError(msg)
    try:
        factory: Any = pkgutil.resolve_name(info.factory)
        adapter = factory()
    except AdapterError:  # it says itself which versions it works with
        raise
    except (Exception, SystemExit) as error:
        missing = _missing(error, info, early)
        if missing:
            raise MissingFramework(missing) from error
        hint = _order(info) if early else "upgrade the adapter and the framework, or tell the adapter's author."
        msg = f"the adapter {info.name!r} is broken: {info.factory} {failure(error)}.\nHint: {hint}"
        raise AdapterError(msg) from error
    if isinstance(adapter, Adapter):
        return adapter
    kind = type(adapter)
    msg = (
        f"the adapter {info.name!r} is broken: {info.factory} gave a {kind.__module__}.{kind.__qualname__}; "
        "expected a padiff.Adapter.\nHint: name the Adapter's class in AdapterInfo.factory."
    )
    raise AdapterError(msg)


def _missing(error: BaseException, info: AdapterInfo, early: str | None) -> str | None:
    """Return the message where it was the framework's own import that failed, or None."""
    if isinstance(error, ModuleNotFoundError) and error.name in info.roots:
        known = FRAMEWORKS.get(error.name)
        return (
            f"the adapter {info.name!r} needs {error.name}, which is not installed.\n"
            f"Hint: {f'pip install {known.distributions[0]}' if known else f'install what provides {error.name!r}'}."
        )
    if not isinstance(error, ImportError | OSError):
        return None
    names = (frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__))
    root = next((name for name in names if name in info.roots), None)
    if root is None:
        return None
    hint = _order(info) if early else f'{sys.executable} -c "import {root}" shows the same error.'
    return f"the adapter {info.name!r} needs {root}, whose import {failure(error)}.\nHint: {hint}"


def _too_early(info: AdapterInfo) -> str | None:
    """Return which framework was imported though this one had to come first, as a sentence, or None."""
    early = sorted(info.load_before & sys.modules.keys())
    if not early or principal(info) in sys.modules:
        return None
    return f"{' and '.join(early)} came before {principal(info)}, which may then fail to load."


def _order(info: AdapterInfo) -> str:
    first, later = principal(info), ", ".join(sorted(info.load_before))
    separate = f"padiff.remote('module:function') gives {first}'s model a process of its own"
    return f"import {first} before {later}, at the top of the script; or keep them in two processes: {separate}."
