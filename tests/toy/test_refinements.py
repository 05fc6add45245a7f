"""Refine correspondences one by one: each refinement alone, on models of a few layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
import pytest

import padiff
from padiff.alignment import Pair, Resolved
from padiff.forcing import LocalSide, Side
from padiff.judging import Measures
from padiff.parameters import Correspondence, named_alike, pair_parameters, transfer, units_of, values_of
from padiff.plugins import adapter_for
from padiff.recording import Order, Task
from padiff.refinement import (
    Evidence,
    aligned,
    with_exchanges,
    with_exchanges_by_value,
    with_layouts,
    with_layouts_by_value,
    with_operations_matched,
    without_mismatches,
)
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F
from padiff.trace import Trace, ValueStore

X = np.random.default_rng(0).standard_normal((5, 6), dtype=np.float32)


def evidence_of(
    reference: Any,
    candidate: Any,
    inputs: tuple[Any, Any] = (X, X),
    *,
    transferred: bool = True,
    operations: bool = False,
) -> Evidence:
    sides = [LocalSide(_wrapped(model, operations)) for model in (reference, candidate)]
    store = ValueStore()
    tasks = [Task((array,), {}) for array in inputs]

    def run(side: Side, task: Task) -> Trace:
        return side.record(task, store, values=False)

    trace = sides[0].record(tasks[0], store)
    return Evidence(sides[0], sides[1], *tasks, trace, run, Measures(), transfer=transferred)


def _wrapped(model: Any, operations: bool) -> Any:
    from padiff.recording import operating

    plain = adapter_for(model).wrap(model)
    return operating(plain) if operations else plain


def matched(evidence: Evidence) -> Correspondence:
    """Match by names, or with the order of calls, and give the candidate the reference's parameters."""
    sides = evidence.reference, evidence.candidate
    ours, theirs = (units_of(side.about, None, values_of(side)) for side in sides)
    found = named_alike(ours, theirs, Resolved()) or pair_parameters(ours, theirs, evidence.flows(), Resolved())
    evidence.assign(found.matches)
    return found


class Square(rows.Module):
    """A product with a matrix that no rule speaks of."""

    def __init__(self, *, transposed: bool = False) -> None:
        self.matrix, self.transposed = rows.parameter(6, 6), transposed

    def forward(self, x: Any) -> Any:
        return x @ (self.matrix.transpose(1, 0) if self.transposed else self.matrix)


class Turned(columns.Layer):
    """The same the other way round."""

    def __init__(self) -> None:
        self.turned = columns.weight(6, 6)

    def forward(self, x: Any) -> Any:
        return x @ self.turned.transpose(1, 0)


class Gated(rows.Module):
    """Two branches of one shape."""

    def __init__(self) -> None:
        self.left, self.right = rows.Linear(6, 6), rows.Linear(6, 6)

    def forward(self, x: Any) -> Any:
        return self.left(x) * F.tanh(self.right(x))


class Weighed(rows.Module):
    """Two branches of one shape, of which only numbers in the code tell which is which."""

    def __init__(self) -> None:
        self.left, self.right = rows.Linear(6, 6), rows.Linear(6, 6)

    def forward(self, x: Any) -> Any:
        return self.left(x) * 0.5 + self.right(x) * 2.0


class Crossed(columns.Layer):
    """The same branches under names that tell nothing, called in the other order."""

    def __init__(self) -> None:
        self.one, self.two = columns.Dense(6, 6), columns.Dense(6, 6)

    def forward(self, x: Any) -> Any:
        doubled = self.one(x) * 2.0
        return self.two(x) * 0.5 + doubled


def partners(correspondence: Correspondence) -> dict[str, str]:
    return {match.reference.path: match.candidate.path for match in correspondence.matches}


def test_a_layout_is_chosen_that_reproduces_the_reference() -> None:
    evidence = evidence_of(rows.Sequential(Square()), columns.Stack(Turned()))
    known = with_layouts(matched(evidence), evidence)
    assert known.settled == {"0.turned": "transposed"}
    assert [link.transposed for _, link in known.links] == [True]
    assert np.array_equal(evidence.candidate.value("0.turned"), evidence.reference.value("0.matrix").T)


@pytest.mark.parametrize(
    ("used", "last"),
    [
        (lambda own, x: x @ own.matrix, False),
        (lambda own, x: x @ own.matrix.transpose(1, 0), True),
        (lambda own, x: own.matrix @ x.transpose(1, 0), True),
        (lambda own, x: F.linear(x, own.matrix, own.shift), False),
        (lambda own, x: F.linear(x, own.matrix.transpose(1, 0), own.shift), True),
        (lambda own, x: x.reshape(5, 2, 3).transpose(1, 0, 2).transpose(1, 0, 2).reshape(5, 6) @ own.matrix, False),
        (lambda own, x: x[:1] * own.matrix, None),
        (lambda own, x: F.concat([x[:0] @ own.matrix, x], 0), None),
        (lambda own, x: x @ (own.matrix + own.matrix.transpose(1, 0)), None),
    ],
    ids=["rows", "columns", "before", "biased", "biased columns", "reshaped", "no product", "no rows", "symmetric"],
)
def test_numbers_tell_over_which_axes_code_sums_a_matrix(used: Callable[..., Any], last: bool | None) -> None:
    class User(rows.Module):
        def __init__(self) -> None:
            self.matrix, self.shift = rows.parameter(6, 6), rows.parameter(6)

        def forward(self, x: Any) -> Any:
            return used(self, x)

    evidence = evidence_of(User(), User())
    flow = evidence.flows()[0]
    assert not evidence.notes
    assert flow.contracted == ({} if last is None else {"matrix": last}), flow


def test_what_is_beyond_doubt_is_no_matter_of_layouts() -> None:
    evidence = evidence_of(rows.Sequential(rows.Linear(6, 6)), columns.Stack(columns.Dense(6, 6)))
    known = matched(evidence)
    assert with_layouts(known, evidence) is known


def test_values_tell_a_layout_where_nothing_is_copied() -> None:
    reference, candidate = rows.Sequential(Square()), columns.Stack(Turned())
    candidate[0].turned.data[...] = reference[0].matrix.data.T
    evidence = evidence_of(reference, candidate, transferred=False)
    known = with_layouts_by_value(matched(evidence), evidence)
    assert [link.transposed for _, link in known.links] == [True]


def test_partners_are_exchanged_where_that_makes_the_code_around_right() -> None:
    evidence = evidence_of(Weighed(), Crossed())
    before = without_mismatches(aligned(matched(evidence), evidence), evidence)
    assert partners(before) == {"left": "one", "right": "two"}
    after = with_exchanges(before, evidence)
    assert partners(after) == {"left": "two", "right": "one"}
    assert evidence.judged(after).forward() == []
    assert np.array_equal(evidence.candidate.value("one.kernel"), evidence.reference.value("right.weight").T)


def test_right_partners_stay() -> None:
    evidence = evidence_of(Gated(), Gated())
    before = without_mismatches(aligned(matched(evidence), evidence), evidence)
    after = with_exchanges(before, evidence)
    assert partners(after) == {"left": "left", "right": "right"}


def test_values_tell_partners_where_nothing_is_copied() -> None:
    reference, candidate = Weighed(), Crossed()
    for ours, theirs in ((reference.left, candidate.two), (reference.right, candidate.one)):
        theirs.kernel.data[...], theirs.offset.data[...] = ours.weight.data.T, ours.bias.data
    evidence = evidence_of(reference, candidate, transferred=False)
    known = matched(evidence)
    assert partners(known) == {"left": "one", "right": "two"}
    assert partners(with_exchanges_by_value(known, evidence)) == {"left": "two", "right": "one"}


def test_channels_are_read_in_the_references_order() -> None:
    images = np.random.default_rng(1).standard_normal((2, 3, 5, 4), dtype=np.float32)
    inputs = images, images.transpose(0, 2, 3, 1)
    reference = rows.Sequential(rows.Conv2d(3, 4, 3), rows.Conv2d(4, 2, 3))
    evidence = evidence_of(reference, columns.Stack(columns.Conv(3, 4, 3), columns.Conv(4, 2, 3)), inputs)
    known = aligned(matched(evidence), evidence)
    assert {order.axes for order in known.axes.values()} == {(0, 3, 1, 2)}
    shapes = [(p.reference.outputs[0].shape, p.candidate.outputs[0].shape) for p in known.alignment.pairs]
    assert all(ours == theirs for ours, theirs in shapes)
    assert evidence.judged(known).forward() == []


class Activated(columns.Layer):
    """A layer that applies an activation too, which the other side does outside."""

    def __init__(self) -> None:
        self.dense = columns.Dense(6, 6)

    def forward(self, x: Any) -> Any:
        return F.relu(self.dense(x))


class Plain(rows.Module):
    """The layer alone."""

    def __init__(self) -> None:
        self.linear = rows.Linear(6, 6)

    def forward(self, x: Any) -> Any:
        return self.linear(x)


class Outside(rows.Module):
    """Applies the activation of what it holds."""

    def __init__(self) -> None:
        self.inner, self.last = Plain(), rows.Linear(6, 2)

    def forward(self, x: Any) -> Any:
        return self.last(F.relu(self.inner(x)))


class Inside(columns.Layer):
    """Holds a layer that applies it itself."""

    def __init__(self) -> None:
        self.inner, self.last = Activated(), columns.Dense(6, 2)

    def forward(self, x: Any) -> Any:
        return self.last(self.inner(x))


def why(correspondence: Correspondence, path: str) -> Pair | None:
    found = (pair for pair in correspondence.alignment.pairs if pair.candidate.path == path)
    return next(found, None)


def test_composites_that_end_elsewhere_are_matched_no_more() -> None:
    evidence = evidence_of(Outside(), Inside())
    before = aligned(matched(evidence), evidence)
    assert why(before, "inner") is not None
    after = without_mismatches(before, evidence)
    assert why(after, "inner") is None
    assert evidence.judged(after).forward() == []


def test_a_fault_is_no_mismatch() -> None:
    candidate = Inside()
    candidate.inner = Plain()  # which forgets the activation
    evidence = evidence_of(Outside(), candidate)
    known = without_mismatches(aligned(matched(evidence), evidence), evidence)
    assert {suspicion.pair.candidate.path for suspicion in evidence.judged(known).forward()} == {""}


DATA = np.random.default_rng(5).standard_normal((3, 4), dtype=np.float32)


class Last(rows.Module):
    """Two layers and what is made of them in the end."""

    def __init__(self, last: Any) -> None:
        self.mix, self.out, self.last = rows.Linear(4, 4), rows.Linear(4, 4), last

    def forward(self, x: Any) -> Any:
        return self.last(self.out(F.tanh(self.mix(x))))


class LastPort(columns.Layer):
    def __init__(self, last: Any) -> None:
        self.first, self.second, self.last = columns.Dense(4, 4), columns.Dense(4, 4), last

    def forward(self, x: Any) -> Any:
        return self.last(self.second(F.tanh(self.first(x))))


class Two(rows.Module):
    def __init__(self) -> None:
        self.odds, self.level = Last(F.softmax), Last(F.sigmoid)

    def forward(self, x: Any) -> Any:
        return self.odds(x) * 2.0, self.level(x) * 3.0


class TwoPort(columns.Layer):
    def __init__(self, last: Any) -> None:
        self.scores, self.height = LastPort(lambda x: x), LastPort(last)

    def forward(self, x: Any) -> Any:
        return F.softmax(self.scores(x)) * 2.0, self.height(x) * 3.0


def test_a_composite_that_ends_elsewhere_is_none_of_the_faults_of_one_beside_it() -> None:
    """Taken apart with the wrong one it seemed wrong as well: the same code takes what both give."""
    assert padiff.diff(Two(), TwoPort(F.sigmoid), DATA).aligned
    report = padiff.diff(Two(), TwoPort(F.tanh), DATA)
    assert [one.candidate.path for one in report.sources] == ["height"], str(report)


def test_operations_are_matched_by_what_they_take() -> None:
    evidence = evidence_of(Gated(), Gated(), operations=True)
    before = without_mismatches(aligned(matched(evidence), evidence), evidence)
    assert not [pair for pair in before.alignment.pairs if pair.candidate.module.operation]
    after = with_operations_matched(before, evidence)
    names = [pair.candidate.path for pair in after.alignment.pairs if pair.candidate.module.operation]
    assert names == ["tanh", "mul"]


@pytest.mark.parametrize(
    ("refine", "models"),
    [(aligned, (Weighed, Crossed)), (without_mismatches, (Outside, Inside)), (with_exchanges, (Weighed, Crossed))],
)
def test_a_refinement_leaves_the_correspondence_that_it_was_given(
    refine: Callable[..., Correspondence], models: tuple[Callable[[], Any], Callable[[], Any]]
) -> None:
    evidence = evidence_of(models[0](), models[1]())
    known = aligned(matched(evidence), evidence)
    held = attrs.asdict(known, recurse=False)
    assert refine(known, evidence) is not known
    assert all(held[name] is value for name, value in attrs.asdict(known, recurse=False).items())


def test_weights_are_given_through_canonical_layouts_and_nothing_else_changes() -> None:
    evidence = evidence_of(Weighed(), Crossed())
    known = matched(evidence)
    before = {path: evidence.reference.value(path).copy() for path in evidence.reference.about.parameters}
    transfer(known.matches, evidence.reference, evidence.candidate)
    assert all(np.array_equal(evidence.reference.value(path), array) for path, array in before.items())
    assert len(known.linked[1]) == 4


def test_what_ran_in_an_order_of_axes_can_be_replayed_after_another_order() -> None:
    """The side was made anew, without the calls of its run: replays raised a KeyError, and settled nothing."""
    evidence = evidence_of(rows.Linear(6, 6), columns.Dense(6, 6))
    first, second = ({("", 0, what, 0): Order((1, 0))} for what in ("input", "output"))
    evidence.free(first)
    side = evidence.side(first)
    evidence.free(second)
    assert evidence.side(first) is side
    assert evidence.side(second) is not side
