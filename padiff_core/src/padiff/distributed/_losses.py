"""Know what the losses of a job's ranks are: one that all have, those of data of their own, or parts of a sum."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import attrs

from padiff.distributed._expected import Expected
from padiff.distributed._grid import Grid
from padiff.distributed._infer import merged
from padiff.distributed._sketches import Arrays, Sketches, read
from padiff.kinds import UNKNOWN, Placement, is_data, shares_data


@attrs.frozen(eq=False)
class Losses:
    """The losses that the ranks told in one step, and the loss of the other run, where it has one."""

    of: Mapping[int, float]
    """Rank -> its loss: of a pipeline those of the last stage alone."""
    grid: Grid
    other: float | None = None

    @property
    def whole(self) -> float | None:
        """Return the job's loss."""
        return self._whole(mean=not self.summed)

    @property
    def summed(self) -> bool:
        """Return whether the ranks' losses add up to the other run's; a stack that shares data averages them."""
        if self.other is None or any(self._differ(axis) and is_data(axis) for axis in self.grid.axes):
            return False
        mean, total = self._whole(mean=True), self._whole(mean=False)
        return mean is not None and total is not None and abs(total - self.other) < abs(mean - self.other)

    def axes(self, split: Collection[str], own: Collection[str] = ()) -> list[str]:
        """Return the axes along which ranks have losses of their own data; what the model is given is ``split`` there.

        Where no rank told a loss the inputs alone say it. Ranks that all told one may have reduced it: those that share
        data have, and others along the axes where each has its ``own``, as gradients tell.
        """
        if not self.of:
            return [axis for axis in self.grid.axes if axis in split]
        apart = [axis for axis in self.grid.axes if self._differ(axis) and (shares_data(axis) or axis in split)]
        return apart + [axis for axis in self.alike(split) if shares_data(axis) or axis in own]

    def alike(self, split: Collection[str]) -> list[str]:
        """Return the axes along which what the model is given is ``split``, and all ranks told one loss."""
        return [axis for axis in self.grid.axes if self.of and axis in split and not self._differ(axis)]

    def own(
        self, split: Collection[str], arrays: Arrays, known: Mapping[str, Placement], expected: Expected | None
    ) -> set[str]:
        """Return along which axes ranks that told one loss sent an output that of data of their own.

        The other run tells: what they sent is hers as a mean alone.
        """
        axes = {axis for axis in self.alike(split) if axis in known and not shares_data(axis)}
        if expected is None or not axes or isinstance(arrays, Sketches):
            return set()
        parts = read(arrays)
        means = {axis: attrs.evolve(how, mean=axis in axes) for axis, how in known.items()}
        near = [expected.nearest(merged(parts, self.grid, how)) for how in (known, means)]
        whole, mean = (one is not None and one.same for one in near)
        return axes if mean and not whole else set()

    def _lacks(self, axis: str) -> bool:
        """Return whether a rank is missing that may have had data of its own, and a loss of these."""
        if not self.grid.lacks(list(self.of), axis):
            return False
        return shares_data(axis) or (axis == UNKNOWN and (len(self.of) == 1 or self._differ(axis)))

    def _differ(self, axis: str) -> bool:
        return any(len({self.of[rank] for rank in group}) > 1 for group in self.grid.groups(self.of, axis))

    def _whole(self, *, mean: bool) -> float | None:
        if not self.of or any(self._lacks(axis) for axis in self.grid.axes):
            return None
        return self.grid.folded(self.of, lambda _, losses: _joined(losses, mean=mean))


def _joined(losses: list[float], *, mean: bool) -> float:
    if len(set(losses)) == 1:
        return losses[0]
    return sum(losses) / (len(losses) if mean else 1)
