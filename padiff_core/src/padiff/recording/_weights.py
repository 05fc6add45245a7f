"""Watch a model's weights, which its own forward may change: a moving average, a norm that is kept below a bound."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import numpy as np

from padiff.adapter import Parameter
from padiff.numerics import Array, difference


class Weights:
    """The weights of a model: those that its runs change are put back after every run.

    Which these are the first run shows, for which all are copied, and the first one with other values: a moving average
    of what is equal changes nothing.
    """

    def __init__(self, parameters: Iterable[Parameter]) -> None:
        self._all = {parameter.path: parameter for parameter in parameters if not parameter.buffer}
        self._changing: set[str] = set()
        self._known = False

    def renew(self) -> None:
        """Look at all of them again in the next run of the whole model: they have other values."""
        self._known = False

    def changing(self) -> dict[str, Array]:
        """Return what those hold now, by their paths, that runs were seen to change."""
        return {path: np.array(self._all[path].view()) for path in self._changing}

    @contextmanager
    def kept(self, *, whole: bool = True) -> Iterator[Callable[[], list[str]]]:
        """Put them back on leaving; give what tells, behind the run, the paths of those that are others now.

        A run that is not of the ``whole`` model changes no more than one that is.
        """
        looked = whole and not self._known
        weights = self._all if looked else {path: self._all[path] for path in self._all if path in self._changing}
        before = {path: np.array(parameter.view()) for path, parameter in weights.items()}
        known: list[list[str]] = []

        def changed() -> list[str]:
            if not known:
                known.append([p for p, weight in weights.items() if not difference(before[p], weight.view()).equal])
            return known[0]

        try:
            yield changed
        finally:
            found = changed()
            for path in found:
                weights[path].assign(before[path])
            self._changing |= set(found)
            self._known = self._known or looked
