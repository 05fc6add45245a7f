"""Look for garbage where there may be some: not among all that the process holds, and not every 700 objects."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_NEW = 20_000
"""Objects after which the youngest are looked through: a model's cycles do not pile up, whatever they hold."""


@contextmanager
def collecting_seldom() -> Iterator[None]:
    """Set aside what is there already, and put everything back as it was on leaving, with no garbage left.

    A recorded run keeps some hundred objects for each call, none of them garbage; looking through them, and through
    the frameworks' own, again and again took a fifth of the time. What the user has set aside stays so; where garbage
    is not looked for at all, nothing is changed.
    """
    before = gc.get_threshold()
    if not gc.isenabled() or before[0] == 0:
        yield
        return
    theirs = gc.get_freeze_count() > 0
    if not theirs:
        gc.freeze()
    gc.set_threshold(max(_NEW, before[0]), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.collect()
        if not theirs:
            gc.unfreeze()


@contextmanager
def collecting_later() -> Iterator[None]:
    """Look for garbage behind what makes many objects of which none is any: loading a package, writing records.

    What is let go of in there is not counted as new afterwards, so that fewer long searches follow: through the objects
    of a framework one takes a tenth of a second.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
