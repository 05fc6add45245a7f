"""Name dtype policies: code that computes in a narrower type than its counterpart, a norm that is not upcast.

Such code gives the same in float64, and natively no more than rounding may explain: what tells are the types alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from padiff.alignment import Pair
from padiff.forcing import Bench
from padiff.judging._findings import place_of
from padiff.numerics import epsilon_of
from padiff.report import SIDES, Note

Policy = dict[str, Any]


class Policies:
    """The types in which the own code of calls computes, looked at once for calls of one code."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._known: dict[tuple[Any, ...], Policy | None] = {}
        self._found: dict[tuple[str, str], tuple[Pair, Policy]] = {}

    def look(self, pair: Pair, dtype: str) -> None:
        """Look at what two calls compute in, of which a value of a type differs."""
        modules = pair.reference.module, pair.candidate.module
        if epsilon_of(dtype) <= epsilon_of("float32") or any(one.operation for one in modules):
            return
        key = *((one.class_name, one.definition) for one in modules), dtype
        if key not in self._known:
            self._known[key] = self._policy(pair)
        policy = self._known[key]
        if policy is not None:
            self._found.setdefault((modules[0].path, modules[1].path), (pair, policy))

    def notes(self) -> Iterator[Note]:
        """Yield one note on each pair of modules whose code computes in other types."""
        for pair, policy in self._found.values():
            yield Note("dtype_policy", policy, place_of(pair.reference), place_of(pair.candidate))

    def _policy(self, pair: Pair) -> Policy | None:
        runs = [self._bench.tried(pair, ours, backward=False, watching=True) for ours in (True, False)]
        types = [run.types for run in runs if run is not None and run.types]
        if len(types) < 2:
            return None
        finest = [min(one, key=epsilon_of) for one in types]
        if epsilon_of(finest[0]) == epsilon_of(finest[1]):
            return None
        wide = epsilon_of(finest[0]) > epsilon_of(finest[1])
        wider = finest[wide]
        return {
            "side": SIDES[not wide],
            "dtype": finest[not wide],
            "wider": wider,
            "operations": types[wide][wider],
        }
