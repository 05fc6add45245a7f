"""Match the parameters of models that are never run: kinds, shapes, settings and names are all that tells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from padiff.alignment import Resolved
from padiff.isolation import side_of
from padiff.parameters import matched_unrun, units_of
from padiff.testing.toy import columns, rows

OURS, THEIRS = ("q_proj", "k_proj", "v_proj", "out_proj"), ("query", "key", "value", "out")


def _holding(base: type, children: Mapping[str, Any]) -> Any:
    model = type("Holder", (base,), {"forward": lambda self, x: x})()
    for name, child in children.items():
        setattr(model, name, child)
    return model


def _partners(reference: Any, candidate: Any) -> dict[str, str]:
    ours, theirs = (units_of(side_of(model).about) for model in (reference, candidate))
    return {one.reference.path: one.candidate.path for one in matched_unrun(ours, theirs, Resolved()).matches}


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 1, 0, 2), (1, 2, 3, 0), (3, 2, 1, 0)])
def test_projections_that_are_listed_in_another_order_are_told_by_names(order: tuple[int, ...]) -> None:
    reference = _holding(
        rows.Module,
        {f"layer{n}": _holding(rows.Module, {name: rows.Linear(4, 4) for name in OURS}) for n in range(2)},
    )
    listed = [THEIRS[place] for place in order]
    candidate = _holding(
        columns.Layer,
        {f"block{n}": _holding(columns.Layer, {name: columns.Dense(4, 4) for name in listed}) for n in range(2)},
    )
    expected = {
        f"layer{n}.{ours}": f"block{n}.{theirs}" for n in range(2) for ours, theirs in zip(OURS, THEIRS, strict=True)
    }
    assert _partners(reference, candidate) == expected


@pytest.mark.parametrize("strides", [(1, 1, 2), (1, 2, 2), (2, 1, 2)])
def test_settings_tell_which_layer_is_one_more(strides: tuple[int, ...]) -> None:
    reference = _holding(rows.Module, {"one": rows.Conv2d(4, 4, 3), "two": rows.Conv2d(4, 4, 3, stride=2)})
    names = dict(zip("abc", strides, strict=True))
    candidate = _holding(columns.Layer, {name: columns.Conv(4, 4, 3, stride=n) for name, n in names.items()})
    partners = _partners(reference, candidate)
    assert {ours: names[theirs] for ours, theirs in partners.items()} == {"one": 1, "two": 2}
