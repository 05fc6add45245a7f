"""Tell the backward passes of a step apart, by what arrives."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from padiff.adapter import Adapter
from padiff.trace import Passes, Trace


class PassCounter:
    """Which backward pass of a step sends each gradient.

    A framework may say which one runs. Else calls, and steps, tell passes apart that are made in front of them and
    behind, and what gets a second gradient gets it of another pass.
    """

    def __init__(self, adapter: Adapter, trace: Trace) -> None:
        self._adapter, self._trace = adapter, trace
        self._of_key: dict[int, int] = {}
        self._number, self._steps = -1, 0
        self._now: Hashable = None
        self._met: set[int | str] = set()

    def met(self, what: int | str, key: int) -> None:
        """Know of a gradient that arrives at a value, by its token, or at a parameter, by its path."""
        now = self._adapter.backward_pass(), len(self._trace.calls), self._steps
        if now != self._now or what in self._met:
            self._now, self._number = now, self._number + 1
            self._met.clear()
        self._met.add(what)
        self._of_key[key] = self._number

    def stepped(self) -> None:
        """Know that an optimizer steps."""
        self._steps += 1

    def found(
        self,
        values: Mapping[int, Sequence[int]],
        parameters: Mapping[str, Sequence[int]],
        first: Mapping[str, int],
        last: Mapping[str, int],
    ) -> Passes | None:
        """Return what all passes sent; None where there was one."""
        if self._number < 1:
            return None
        sent = {token: list(keys) for token, keys in values.items()}
        arrived = {path: list(keys) for path, keys in parameters.items()}
        return Passes(self._of_key, sent, arrived, dict(first), dict(last))
