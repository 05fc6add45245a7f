"""Tell an error of padiff's own, or of an adapter, from one of the user's model."""

from __future__ import annotations

import platform
import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress

from padiff._version import __version__
from padiff.adapter import Adapter
from padiff.errors import InternalError, InternalWarning, PadiffError
from padiff.plugins import loaded
from padiff.recording._frames import core_line, own_line


@contextmanager
def internal_errors(adapter: Adapter | None = None) -> Iterator[None]:
    """Raise `InternalError` where padiff's own code fails within: what arises elsewhere is raised as it is.

    Around a run of a model, whose ``adapter`` is known, that is any of padiff's code; elsewhere that of adapters.
    """
    try:
        yield
    except PadiffError:
        raise
    except Exception as error:
        adapters = loaded() if adapter is None else (adapter,)
        line = own_line(error, adapters, core=adapter is not None)
        if line is None:
            raise
        raise _internal(error, line, adapters, adapter) from error


def warn_if_internal(error: Exception) -> None:
    """Warn, `InternalWarning`, of an error of the core's own in a run that a report can do without.

    Such a run may raise for what a model lacks, or a framework: that may arise in the line of an adapter, which calls
    a function of it.
    """
    cause = error.__cause__ if isinstance(error, InternalError) else error
    line = None if cause is None or isinstance(cause, PadiffError) else core_line(cause)
    if line is not None:
        said = str(error if cause is not error else _internal(error, line, loaded()))
        warnings.warn(f"{said}\nThe report rests on what else was run.", InternalWarning, stacklevel=2)


def _internal(
    error: Exception, line: str, adapters: Collection[Adapter], adapter: Adapter | None = None
) -> InternalError:
    home = "padiff" if adapter is None else f"padiff, or its {adapter.name} adapter,"
    msg = (
        f"{home} failed itself: {type(error).__name__} at {line}: {error}\n"
        f"With {_versions(adapters)}. This says nothing of the model.\n"
        "Hint: please report it, with these lines and the traceback (--traceback on the command line); another "
        "version of the framework may work: see docs/versions.md."
    )
    return InternalError(msg)


def _versions(adapters: Collection[Adapter]) -> str:
    found = [f"padiff {__version__}", f"Python {platform.python_version()}"]
    for adapter in adapters:
        with suppress(Exception):  # it may be just this that fails
            found.append(f"{adapter.name} {adapter.environment()[adapter.name]}")
    return ", ".join(found)
