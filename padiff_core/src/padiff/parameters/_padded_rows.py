"""Know the rows that a model adds to its vocabulary, which no token names: Megatron fills it up to a multiple.

Two models have one such size each. The rows behind the smaller one are padding where no token of the run names them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping

import attrs

from padiff.parameters._units import HeldUnit, units_of
from padiff.trace import Call, Cut, Description, Leaf, Trace, cut_trace

_ROLES = {"embedding": ("weight",), "linear": ("weight", "bias")}
"""Kind of a unit -> its roles whose first canonical axis is the vocabulary's."""


@attrs.frozen(eq=False)
class PaddedRows:
    """What one model pads."""

    count: int
    """How many rows its vocabulary has."""
    real: int
    """How many of these are real: the first ones."""
    parameters: Mapping[str, Cut]
    """Path of a parameter -> what of it is real."""
    tables: frozenset[str]
    """Paths of the embeddings."""
    heads: frozenset[str]
    """Paths of the layers with a weight of their own that give a number for each row."""

    def about(self, about: Description) -> Description:
        """Return the model as it would be without padding."""
        records = about.parameters.items()
        cut = {path: attrs.evolve(one, shape=self._shape(path, one.shape)) for path, one in records}
        return attrs.evolve(about, parameters=cut)

    def _shape(self, path: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        return self.parameters[path].shape(shape) if path in self.parameters else shape

    def unnamed(self, trace: Trace) -> bool:
        """Return whether a run shows that no token names the rows beyond the real ones."""
        given = [leaf for call in trace.calls if call.path in self.tables for leaf in call.inputs if _is_number(leaf)]
        values = [trace.value(leaf) for leaf in given]
        return bool(values) and all(one is not None and (not one.size or one.max() < self.real) for one in values)

    def of(self, trace: Trace) -> Trace:
        """Return a run as it would be without padding."""
        shapes = {
            trace.parameters[path].shape: cut for path, cut in self.parameters.items() if path in trace.parameters
        }
        heads = [call for call in trace.calls if self._gives_logits(call, trace)]
        sizes = {math.prod(leaf.shape) for call in heads for leaf in call.outputs if self._is_row(leaf)}
        first = min((call.index for call in heads), default=len(trace.calls))
        above = {above for call in heads for above in call.ancestors()}

        def cut(call: Call, side: str, leaf: Leaf) -> Cut | None:
            if side == "input" and len(leaf.shape) > 1 and leaf.shape in shapes and call in heads:
                return shapes[leaf.shape]
            after = call.index > first or (side == "output" and (call in above or call.index == first))
            row = after and self._is_row(leaf) and math.prod(leaf.shape) in sizes
            return Cut(len(leaf.shape) - 1, self.real) if row else None

        return cut_trace(trace, self.parameters, cut)

    def logits(self, trace: Trace) -> list[tuple[Call, int]]:
        """Return the calls that give a number for each row, and which of their outputs does."""
        heads = [call for call in trace.calls if self._gives_logits(call, trace)]
        return [(call, at) for call in heads for at, leaf in enumerate(call.outputs) if self._is_row(leaf)]

    def _is_row(self, leaf: Leaf) -> bool:
        return bool(leaf.shape) and leaf.shape[-1] == self.count

    def _gives_logits(self, call: Call, trace: Trace) -> bool:
        """Return whether a call gives a number for each row: by a weight of its own, or by the embedding's."""
        own = call.path in self.heads
        if not own and call.module.kind == "linear":
            own = not any(path.startswith(f"{call.path}.") for path in trace.parameters)
        return own and any(map(self._is_row, call.outputs))


def _is_number(leaf: Leaf) -> bool:
    return leaf.dtype.startswith(("int", "uint"))


def padded_rows(ours: Description, theirs: Description) -> tuple[PaddedRows | None, PaddedRows | None]:
    """Return what either of two models pads, for all that their embeddings show; at most one does."""
    units = [units_of(about) for about in (ours, theirs)]
    left = [Counter(_size(unit) for unit in of_one if unit.kind == "embedding") for of_one in units]
    alone = [set((left[side] - left[1 - side]).keys()) for side in (0, 1)]
    if not all(len(one) == 1 for one in alone):
        return None, None
    (mine, width), (yours, other) = (next(iter(one)) for one in alone)
    if width != other or mine == yours or width in (mine, yours):
        return None, None
    counts = mine, yours
    found = [_padded(units[side], counts[side], min(counts), width) for side in (0, 1)]
    return (found[0], None) if mine > yours else (None, found[1])


def _size(unit: HeldUnit) -> tuple[int, ...]:
    return unit.roles["weight"].shape if "weight" in unit.roles else ()


def _padded(units: list[HeldUnit], count: int, real: int, width: int) -> PaddedRows:
    """Return what a model pads whose vocabulary has as many rows."""
    own = [unit for unit in units if unit.kind in _ROLES and _size(unit) == (count, width)]
    cuts = dict(cut for unit in own for cut in _cuts(unit, real))
    names = {kind: frozenset(unit.module.path for unit in own if unit.kind == kind) for kind in _ROLES}
    return PaddedRows(count, real, cuts, names["embedding"], names["linear"])


def _cuts(unit: HeldUnit, real: int) -> Iterator[tuple[str, Cut]]:
    for role in _ROLES[unit.kind or ""]:
        held = unit.roles.get(role)
        if held is not None and held.part.permuted:
            order = held.part.transpose or tuple(range(len(held.shape)))
            yield held.parameter.path, Cut(order[0], real)
