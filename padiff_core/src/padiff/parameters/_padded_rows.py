"""Know the rows that a model adds to its vocabulary, which no token names: Megatron fills it up to a multiple.

Two models have one such size each. The rows behind the smaller one are padding where no token of the run names them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

import attrs
import numpy as np

from padiff.numerics import NEGLIGIBLE_GRADIENT, Array, epsilon
from padiff.parameters._units import HeldUnit, units_of
from padiff.paths import below
from padiff.recording import Order, Orders, reread
from padiff.trace import Call, Cut, Description, Leaf, Trace, cut_description

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
        return cut_description(about, self.parameters)

    def unnamed(self, trace: Trace) -> bool:
        """Return whether a run shows that no token names the rows beyond the real ones."""
        given = [leaf for call in trace.calls if call.path in self.tables for leaf in call.inputs if _is_number(leaf)]
        values = [trace.value(leaf) for leaf in given]
        return bool(values) and all(one is not None and (not one.size or one.max() < self.real) for one in values)

    def of(self, trace: Trace) -> Trace:
        """Return a run as it would be without padding."""
        return reread(trace, self.orders(trace), self.parameters)

    def orders(self, trace: Trace) -> Orders:
        """Return how the tensors of such a run are read as they would be without padding."""
        cutting = self._cutting(trace)
        found = {
            (*call.key, side, index): (cutting(call, side, leaf), len(leaf.shape))
            for call in trace.calls
            for side, leaves in (("input", call.inputs), ("output", call.outputs))
            for index, leaf in enumerate(leaves)
        }
        return {place: Order(tuple(range(axes)), cut=cut) for place, (cut, axes) in found.items() if cut is not None}

    def _cutting(self, trace: Trace) -> Callable[[Call, str, Leaf], Cut | None]:
        """Return what tells what is read of a tensor that a call takes (``input``) or gives (``output``).

        Where no call gives the logits, they are what the model returns of that many columns.
        """
        heads, shapes = self._heads(trace), self._shapes(trace)
        sizes = {math.prod(leaf.shape) for call in heads for leaf in call.outputs if self.is_row(leaf)}
        first = min((call.index for call in heads), default=len(trace.calls))
        above = {above for call in heads for above in call.ancestors()}
        returned = {leaf.token for call in ([] if heads else trace.calls[:1]) for leaf in call.outputs}

        def cut(call: Call, side: str, leaf: Leaf) -> Cut | None:
            if side == "input" and leaf.shape in shapes and call in heads:
                return shapes[leaf.shape]
            after = call.index > first or (side == "output" and (call in above or call.index == first))
            logits = (after and math.prod(leaf.shape) in sizes) or leaf.token in returned
            return self._cut(leaf) if logits else None

        return cut

    def trained(self, trace: Trace) -> Iterator[tuple[Call, int]]:
        """Yield the calls, with an index of their outputs, that give logits of padding to which gradients come."""
        for call in self._heads(trace) or trace.calls[:1]:
            for at, leaf in enumerate(call.outputs):
                cut, gradient = self._cut(leaf), trace.gradient(leaf)
                if cut is not None and gradient is not None and _counts(cut.rest(gradient), gradient):
                    yield call, at

    def behind(self, trace: Trace) -> set[tuple[str, int]]:
        """Return what may be made of the logits, and is no logits: path of a module, index of its output."""
        takers = [call for call in trace.calls if any(map(self.is_row, call.inputs))]
        inside = {trace.root, *takers, *(above for call in takers for above in call.ancestors())}
        return {(call.path, i) for call in inside for i, leaf in enumerate(call.outputs) if not self.is_row(leaf)}

    def _heads(self, trace: Trace) -> list[Call]:
        """Return the calls that give a number for each row: by a weight of their own, or by the embedding's."""
        given = self._shapes(trace)

        def gives_logits(call: Call) -> bool:
            lent = call.module.kind == "linear" or any(leaf.shape in given for leaf in call.inputs)
            return call.path in self.heads or (lent and not any(below(path, call.path) for path in trace.parameters))

        return [call for call in trace.calls if any(map(self.is_row, call.outputs)) and gives_logits(call)]

    def _shapes(self, trace: Trace) -> dict[tuple[int, ...], Cut]:
        """Return the shapes of tables, and of these transposed, with what of them is real."""
        found: dict[tuple[int, ...], Cut] = {}
        for path, cut in self.parameters.items():
            shape = trace.parameters[path].shape if path in trace.parameters else ()
            if len(shape) > 1:
                found[shape] = cut
                found.setdefault(shape[::-1], Cut(len(shape) - 1 - cut.axis, cut.count, cut.whole))
        return found

    def _cut(self, leaf: Leaf) -> Cut | None:
        """Return what of a tensor is real that may hold a number for each row; None where it cannot."""
        axes = (axis for axis in reversed(range(len(leaf.shape))) if leaf.shape[axis] == self.count)
        axis = next(axes, None)
        return None if axis is None else Cut(axis, self.real, self.count)

    def is_row(self, leaf: Leaf) -> bool:
        """Return whether a tensor may hold a number for each row."""
        return self.count in leaf.shape


def _counts(part: Array, whole: Array) -> bool:
    """Return whether a part of a gradient is more than what rounding leaves of none."""
    sizes = [float(np.abs(one).max(initial=0)) for one in (part, whole)]
    return sizes[0] > NEGLIGIBLE_GRADIENT(epsilon(whole.dtype)) * sizes[1]


def _is_number(leaf: Leaf) -> bool:
    return leaf.dtype.startswith(("int", "uint"))


def padded_rows(ours: Description, theirs: Description) -> tuple[PaddedRows | None, PaddedRows | None]:
    """Return what either of two models pads, for all that their embeddings show; at most one does."""
    units = [units_of(about) for about in (ours, theirs)]
    left = [Counter(_size(unit) for unit in of_one if unit.kind == "embedding") for of_one in units]
    alone = [set((left[side] - left[1 - side]).keys()) for side in (0, 1)]
    if not all(len(one) == 1 and all(len(size) == 2 for size in one) for one in alone):  # a table, and no shard of one
        return None, None
    (mine, width), (yours, other) = (next(iter(one)) for one in alone)
    if width != other or mine == yours or width in (mine, yours):
        return None, None
    counts = mine, yours
    side = int(yours > mine)
    found = _padded(units[side], units[1 - side], counts[side], min(counts), width)
    return (None, found) if side else (found, None)


def _size(unit: HeldUnit) -> tuple[int, ...]:
    return unit.roles["weight"].shape if "weight" in unit.roles else ()


def _padded(units: list[HeldUnit], others: list[HeldUnit], count: int, real: int, width: int) -> PaddedRows:
    """Return what a model pads whose vocabulary has as many rows.

    Layers of that size that the other model has too give something else; logits come last.
    """
    tables, layers = (
        [unit for unit in units if unit.kind == kind and _size(unit) == (count, width)] for kind in _ROLES
    )
    alike = sum(unit.kind == "linear" and _size(unit) == (count, width) for unit in others)
    own = [*tables, *layers[alike:]]
    cuts = dict(cut for unit in own for cut in _cuts(unit, real, count))
    names = {kind: frozenset(unit.module.path for unit in own if unit.kind == kind) for kind in _ROLES}
    return PaddedRows(count, real, cuts, names["embedding"], names["linear"])


def _cuts(unit: HeldUnit, real: int, count: int) -> Iterator[tuple[str, Cut]]:
    for role in _ROLES[unit.kind or ""]:
        held = unit.roles.get(role)
        if held is not None and held.part.permuted:
            order = held.part.transpose or tuple(range(len(held.shape)))
            yield held.parameter.path, Cut(order[0], real, count)
