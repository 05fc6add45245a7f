"""Watch a model's weights, which its own forward may change: a moving average, a norm that is kept below a bound."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from padiff.adapter import Model
from padiff.numerics import difference

__all__ = ["Weights"]


class Weights:
    """The weights of a model: those that its runs change are put back after every run.

    Which these are the first run shows, for which all are copied.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self._changing: list[str] | None = None

    @contextmanager
    def kept(self) -> Iterator[Callable[[], list[str]]]:
        """Put them back on leaving; give what tells, within, the paths of those that are others now."""
        known = self._changing
        weights = {
            path: parameter
            for path, parameter in self._model.parameters().items()
            if not parameter.buffer and (known is None or path in known)
        }
        before = {path: np.array(parameter.view()) for path, parameter in weights.items()}

        def changed() -> list[str]:
            return [path for path, weight in weights.items() if not difference(before[path], weight.view()).equal]

        try:
            yield changed
        finally:
            found = changed()
            for path in found:
                weights[path].assign(before[path])
            if known is None:
                self._changing = found
