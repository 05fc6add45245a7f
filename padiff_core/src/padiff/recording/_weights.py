"""Watch a model's weights, which its own forward may change: a moving average, a norm that is kept below a bound."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import numpy as np

from padiff.adapter import Parameter
from padiff.numerics import difference


class Weights:
    """The weights of a model: those that its runs change are put back after every run.

    Which these are the first run shows, for which all are copied.
    """

    def __init__(self, parameters: Iterable[Parameter]) -> None:
        self._watched = {parameter.path: parameter for parameter in parameters if not parameter.buffer}
        """All at first; later those that a run changes."""
        self._known = False

    @contextmanager
    def kept(self) -> Iterator[Callable[[], list[str]]]:
        """Put them back on leaving; give what tells, behind the run, the paths of those that are others now."""
        weights = self._watched
        before = {path: np.array(parameter.view()) for path, parameter in weights.items()}
        told: list[list[str]] = []

        def changed() -> list[str]:
            if not told:
                told.append([p for p, weight in weights.items() if not difference(before[p], weight.view()).equal])
            return told[0]

        try:
            yield changed
        finally:
            found = changed()
            for path in found:
                weights[path].assign(before[path])
            if not self._known:
                self._known, self._watched = True, {path: weights[path] for path in found}
