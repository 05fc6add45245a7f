"""Ask of code that differs whether it would be right, were rows of the layers that it takes in another order.

So it is where one side turns neighbouring channels of each head (rotary positions) and the other those that lie half a
head apart: who loads weights for the one into the other has to convert them, and no value shows why.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping

import attrs
import numpy as np

from padiff.alignment import Pair
from padiff.forcing import Bench
from padiff.parameters import Correspondence
from padiff.refinement._evidence import Evidence
from padiff.refinement._trials import Trial
from padiff.report import Verdict

_MOST = 24
"""Trials for the code of one class: four sizes of heads, either way round, for each two of three layers."""
_USUAL = 64
"""The size of heads that is tried first, and those nearest to it next."""
Rows = tuple[int, ...]
Way = Mapping[str, Rows]
"""Layer, as the code names it -> the order of its rows."""


def with_other_rows(correspondence: Correspondence, evidence: Evidence) -> Correspondence:
    """Note under which order of rows code that differs is right: of one module of a class, that of others is tried.

    A module without layers of its own, which turns what it is given, is asked for with the code around.
    """
    judge = evidence.judged(correspondence)
    suspicions = judge.forward(rough=True)
    known: dict[str, Way | None] = {}
    found: dict[str, Way] = {}
    for owner in dict.fromkeys(one.pair for one in suspicions if one.verdict is Verdict.DIFFERS):
        bench, around = judge.settler.bench, owner
        layers = _layers(correspondence, owner)
        if not layers and (above := correspondence.alignment.around(owner)) is not None:
            around, layers = above, _layers(correspondence, above)
            bench = attrs.evolve(bench, alignment=correspondence.alignment.without([owner]))
        name = owner.candidate.module.class_name
        ways = [known[name]] if name in known else itertools.islice(_ways(layers, correspondence), _MOST)
        way = next((one for one in ways if one and _is_right(bench, around, layers, one)), None)
        known.setdefault(name, way)
        if way is not None:
            found[owner.candidate.path] = way
    return (
        evidence.replaced(correspondence, attrs.evolve(correspondence, other_rows=found)) if found else correspondence
    )


def _layers(correspondence: Correspondence, owner: Pair) -> dict[str, Pair]:
    """Return the calls of linear layers by the code of a call, by the names that it has for them."""
    linear = {match.candidate.module.path for match in correspondence.matches if match.candidate.kind == "linear"}
    below = [pair for pair in correspondence.alignment.pairs if pair.candidate.parent is owner.candidate]
    return {owner.name_of(pair.candidate): pair for pair in below if pair.candidate.path in linear and pair.outputs}


def _ways(layers: Mapping[str, Pair], correspondence: Correspondence) -> Iterator[Way]:
    """Yield orders for one layer that others have already, then those of heads for each two that take the same."""
    for name, pair in layers.items():
        if not any(place[:3] == (*pair.key, "output") and order.rows for place, order in correspondence.axes.items()):
            fits = (rows for rows in correspondence.row_orders if len(rows) == _width(pair))
            yield from ({name: tuple(np.argsort(rows).tolist())} for rows in fits)
    takes = {name: [leaf.token for leaf in pair.candidate.inputs] for name, pair in layers.items()}
    twos = [two for two in itertools.combinations(layers, 2) if takes[two[0]] == takes[two[1]]]
    widths = math.gcd(*(_width(layers[name]) for two in twos for name in two)) if twos else 0
    sizes = [size for size in range(4, widths + 1, 2) if not widths % size]
    for size in sorted(sizes, key=lambda size: abs(math.log2(size / _USUAL))):
        for two, turned in itertools.product(twos, (False, True)):
            yield {name: _turned(_width(layers[name]), size, turned=turned) for name in two}


def _width(pair: Pair) -> int:
    """Return how many channels a layer gives."""
    return pair.candidate.outputs[0].shape[-1]


def _turned(width: int, size: int, *, turned: bool) -> Rows:
    """Return the order that puts neighbours half a head apart, or the other way round."""
    rows = np.arange(width).reshape(-1, *((2, size // 2) if turned else (size // 2, 2)))
    return tuple(rows.transpose(0, 2, 1).ravel().tolist())


def _is_right(bench: Bench, owner: Pair, layers: Mapping[str, Pair], way: Way) -> bool:
    """Return whether code gives what the reference gives where the layers have their rows in these orders."""
    if not way.keys() <= layers.keys():
        return False
    made = {leaf.token: way[name] for name in way for leaf in layers[name].reference.outputs}
    return not Trial(attrs.evolve(bench, orders=made), owner, bench.trace).error()
