"""Compare two models once more with inputs that hide no position: what differs at hidden ones alone is no fault.

Behind a mask, or beyond a length, either side may compute what it likes: zeros, what the last layer left, or what a
softmax over nothing gives. No gradient comes to such positions, which proves nothing by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
from numpy.typing import NDArray

from padiff.errors import PadiffError
from padiff.forcing import is_recorded
from padiff.grouping import grouped
from padiff.numerics import Array, hidden_positions, is_array
from padiff.parameters import transfer
from padiff.pytree import copied
from padiff.recording import Task

if TYPE_CHECKING:
    from padiff.engine._run import Run
    from padiff.judging import Outcome
    from padiff.parameters import Correspondence
    from padiff.trace import Trace

_LOOKED = 64
"""Values at most whose gradients are looked at."""
_VISIBLE = 2
"""Positions that must be visible of each line, to give the others their content."""


@attrs.frozen
class Positions:
    """Which positions of lines, such as the rows of a batch, are hidden."""

    hidden: NDArray[np.bool_]
    """By line and position: one line that stands for all where these hide the same."""
    lines_first: bool = True
    """Whether lines come before positions in the value's axes."""

    @property
    def instead(self) -> NDArray[np.intp]:
        """Return by line and position whose content a position is given: its own if it is visible."""
        size = self.hidden.shape[1]
        return np.stack(
            [np.where(line, np.resize(np.flatnonzero(~line), size), np.arange(size)) for line in self.hidden]
        )

    def shown(self, array: Array) -> Array:
        """Return an array with what stands at visible positions in place of what stands at hidden ones.

        Lengths, which count the visible positions of each line, become those of full ones.
        """
        lines, size = self.hidden.shape
        counts = (~self.hidden).sum(1)
        if array.dtype.kind in "iu" and array.ndim == 1 and lines in (1, array.size) and (array == counts).all():
            return np.full_like(array, size)
        along = [axis for axis, extent in enumerate(array.shape) if extent == size]
        across = [axis for axis, extent in enumerate(array.shape) if extent == lines]
        if lines == size:
            across = across[:1] if self.lines_first else across[1:2]
        for axis in along:
            if lines == 1:
                array = array.take(self.instead[0], axis)
            elif across and axis != across[0]:
                order = self.instead if across[0] < axis else self.instead.T
                others = [at for at in range(array.ndim) if at not in (axis, across[0])]
                array = np.take_along_axis(array, np.expand_dims(order, others), axis)
        return array


def unhidden(run: Run, known: Correspondence, trace: Trace) -> Outcome | None:
    """Return what is known of two models where hidden positions are given what others have; None where nobody can.

    ``trace`` is the reference's: what gets no gradient there is hidden.
    """
    if run.unhidden or is_recorded(run.reference):
        return None
    shown = ([_shown(task, hidden) for task in run.tasks] for hidden in _hidden(trace))
    ours, theirs = next(filter(all, shown), (None, None))
    if ours is None or theirs is None:
        return None
    other = run.again((ours, theirs))
    other.unhidden = True
    try:
        other.step(0)
    except PadiffError:
        return None
    finally:
        if run.options.transfer:
            transfer(known.matches, run.reference, run.candidate)
    return other.outcome


def _hidden(trace: Trace) -> list[Positions]:
    """Return the positions at which values have gradients of zeros, those of the most values first."""
    keys = [key for key in dict.fromkeys(trace.gradients.values()) if key >= 0]
    looked = (trace.array(key) for key in keys[:: 1 + len(keys) // _LOOKED])
    found = [one for gradient in looked if not gradient.all() and (one := _positions(gradient == 0)) is not None]
    alike = grouped(found, lambda one: (one.hidden.shape, one.hidden.tobytes(), one.lines_first))
    return [some[0] for some in sorted(alike.values(), key=len, reverse=True)]


def _positions(zero: NDArray[np.bool_]) -> Positions | None:
    """Return hidden positions by lines of which each has visible ones; None where there are none such."""
    axes, hidden = hidden_positions(zero) or ((), np.ones((1, 1), np.bool_))
    ways = (hidden, hidden.T) if len(axes) == 2 else (hidden.reshape(1, -1),)
    # The same content everywhere would hide as much: an average over it is the same, whatever it is over.
    known = [lines for lines in ways if (~lines).sum(1).min() >= _VISIBLE]
    return Positions(known[0], known[0] is ways[0]) if known else None


def _shown(task: Task, hidden: Positions) -> Task | None:
    """Return a task whose arrays have at hidden positions what stands at others; None where that changes nothing."""
    changed = False

    def shown(_: str, leaf: Any) -> Array:
        nonlocal changed
        array = np.asarray(leaf)
        other = hidden.shown(array)
        changed |= other is not array
        return other

    args, kwargs = (copied(one, is_array, shown) for one in (task.args, dict(task.kwargs)))
    return attrs.evolve(task, args=args, kwargs=kwargs) if changed else None
