"""Judge tensors that are used several times: by one call, or inside of a model that returns them as well."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.engine import record_once
from padiff.report import Verdict
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

TOKENS = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)


class Attention(rows.Module):
    def __init__(self) -> None:
        self.q, self.k, self.v = (rows.Linear(4, 4) for _ in range(3))

    def forward(self, query: Any, key: Any, value: Any) -> Any:
        return F.softmax(self.q(query) * self.k(key)) * self.v(value)


class Turned(columns.Layer):
    def __init__(self) -> None:
        self.q, self.k, self.v = (columns.Dense(4, 4) for _ in range(3))

    def forward(self, query: Any, key: Any, value: Any) -> Any:
        return F.softmax(self.q(query) * self.k(key)) * self.v(value)


class Reference(rows.Module):
    def __init__(self) -> None:
        self.stem, self.attention, self.head = rows.Linear(4, 4), Attention(), rows.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        x = F.tanh(self.stem(x))
        return self.head(self.attention(x, x, x))


class Candidate(columns.Layer):
    def __init__(self) -> None:
        self.stem, self.attention, self.head = columns.Dense(4, 4), Turned(), columns.Dense(4, 4)

    def forward(self, x: Any) -> Any:
        x = F.sigmoid(self.stem(x))
        return self.head(self.attention(x, x, x))


def test_a_wrong_tensor_that_is_query_key_and_value_is_no_matter_of_precision() -> None:
    report = padiff.diff(Reference(), Candidate(), TOKENS, phase="forward")
    (source,) = report.sources
    assert (source.what.kind, source.between) == ("input", ("stem", "attention")), str(report)
    assert not any(found.verdict is Verdict.PRECISION for found in report.findings), str(report)


def placed(
    base: Any, attention: Any, linear: Any, *places: str, apart: bool = False, scale: Any = None, cut: bool = False
) -> Any:
    """Return blocks that give their attention what the one before gave, with places added to some of it.

    They may be added for each ``apart``, and have a ``scale``; with ``cut`` no gradient goes to that.
    """

    class Block(base):
        def __init__(self) -> None:
            self.attention, self.out = attention(), linear(4, 4)

        def forward(self, x: Any, place: Any) -> Any:
            both = x + place
            given = (both if not apart else x + place, both, both)
            both_or_x = (y if name in places else x for name, y in zip("qkv", given, strict=True))
            return x + self.out(self.attention(*both_or_x))

    class Model(base):
        def __init__(self) -> None:
            self.place, self.one, self.two = linear(4, 4), Block(), Block()
            if scale is not None:
                self.scale = scale(np.ones(4, np.float32), requires_grad=True, role="parameter")

        def forward(self, x: Any) -> Any:
            place = self.place(x)
            if scale is not None:
                place = place * (F.detach(self.scale) if cut else self.scale)
            return self.two(self.one(x, place), place)

    return Model()


class Named(columns.Layer):
    def __init__(self) -> None:
        self.q, self.k, self.v = (columns.Dense(4, 4) for _ in range(3))

    def forward(self, x: Any, y: Any, z: Any) -> Any:
        return F.softmax(self.q(x) * self.k(y)) * self.v(z)


@pytest.mark.parametrize("attention", [Turned, Named])
@pytest.mark.parametrize("places", ["q k", "q", "", "q k v"])
def test_a_tensor_that_is_given_for_two_is_the_source(places: str, attention: Any) -> None:
    """What was given for another tensor as well had no counterpart: the attention was wrong in its own code, too."""
    ours = placed(rows.Module, Attention, rows.Linear, "q", "k")
    report = padiff.diff(ours, placed(columns.Layer, attention, columns.Dense, *places.split()), TOKENS)
    assert [source.candidate.path for source in report.sources] == ["one", "two"] * (places != "q k"), str(report)


@pytest.mark.parametrize(("cut", "turned"), [(False, False), (False, True), (True, False)])
def test_what_is_made_twice_here_and_once_there_gets_shares_of_a_gradient(*, cut: bool, turned: bool) -> None:
    """Beside a fault of the backward pass each share was a source of its own: DETR's queries and keys."""
    ours = placed(rows.Module, Attention, rows.Linear, "q", "k", apart=turned, scale=rows.Tensor)
    theirs = placed(columns.Layer, Turned, columns.Dense, "q", "k", apart=not turned, scale=columns.Tensor, cut=cut)
    report = padiff.diff(ours, theirs, TOKENS)
    assert [source.what.name for source in report.sources] == ["scale"] * cut, str(report)


class Returning(rows.Module):
    """Two layers that give what is between them too: a copy of it."""

    def __init__(self) -> None:
        self.one, self.two = rows.Linear(4, 4), rows.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        state = F.tanh(self.one(x))
        return self.two(F.sigmoid(state)), state * 1.0


class GoingOn(columns.Layer):
    """The same, with the very tensor that the second layer is given."""

    def __init__(self, scale: float = 1.0) -> None:
        self.one, self.two, self.scale = columns.Dense(4, 4), columns.Dense(4, 4), scale

    def forward(self, x: Any) -> Any:
        state = F.tanh(self.one(x))
        return self.two(F.sigmoid(state)) * self.scale, state


@pytest.mark.parametrize("scale", [1.0, 1.01])
def test_what_is_returned_may_be_used_inside_as_well(scale: float) -> None:
    report = padiff.diff(Returning(), GoingOn(scale), TOKENS)
    assert [(found.what.kind, found.what.name) for found in report.sources] == [("output", "[0]")][: scale != 1], str(
        report
    )


class Siamese(rows.Module):
    def __init__(self) -> None:
        self.first, self.norm = rows.Linear(4, 8), rows.BatchNorm(8)

    def forward(self, x: Any, y: Any) -> Any:
        return self.norm(self.first(x)), self.norm(self.first(y))


class Biased(columns.Layer):
    """The same in a framework that tracks variances without Bessel's correction."""

    def __init__(self, keep: float) -> None:
        self.first, self.norm = columns.Dense(4, 8), columns.BatchNormalization(8, keep=keep)

    def normed(self, x: Any) -> Any:
        kept = self.norm.moving_variance.data * self.norm.keep
        y = self.norm(self.first(x))
        self.norm.moving_variance.data[...] = kept + (self.norm.moving_variance.data - kept) * (len(x.data) - 1) / len(
            x.data
        )
        return y

    def forward(self, x: Any, y: Any) -> Any:
        return self.normed(x), self.normed(y)


@pytest.mark.parametrize(("keep", "size"), [(0.9, 3), (0.9, 2), (0.8, 2)])
def test_a_norm_that_is_called_twice_may_track_variances_by_convention(keep: float, size: int) -> None:
    """Every Siamese network of torch was wrong in Paddle, which tracks them so; heads shared by scales were, too."""
    report = padiff.diff(Siamese(), Biased(keep), (TOKENS, TOKENS[:size] * 2))
    assert report.aligned == (keep == 0.9), str(report)


@pytest.mark.parametrize("keep", [0.9, 0.8])
def test_a_batch_may_be_as_large_as_there_are_channels(keep: float) -> None:
    """Which axis holds the channels was not known then, and the variance was a source."""
    report = padiff.diff(Siamese(), Biased(keep), (np.resize(TOKENS, (8, 4)), TOKENS))
    assert report.aligned == (keep == 0.9), str(report)


@pytest.mark.parametrize(("keep", "size"), [(0.9, 2), (0.8, 2)])
def test_recorded_runs_may_track_variances_by_convention_too(keep: float, size: int, tmp_path: Path) -> None:
    net, port = Siamese(), Biased(0.9)
    given = TOKENS, TOKENS[:size] * 2
    padiff.diff(net, port, given)
    port.norm.keep = keep
    for model, name in ((net, "a"), (port, "b")):
        record_once(model, given, tmp_path / name)
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert report.aligned == (keep == 0.9), str(report)
    assert ("running_variance" in {note.kind for note in report.notes}) == (keep == 0.9)


IDS = np.random.default_rng(0).integers(0, 7, (3, 5))


class LooksUpTwice(rows.Module):
    def __init__(self) -> None:
        self.words = rows.Embedding(7, 4)
        self.norm, self.one, self.two = rows.LayerNorm(4), rows.Linear(4, 4), rows.Linear(4, 3)

    def forward(self, ids: Any) -> Any:
        return self.two(F.tanh(self.one(self.words(ids))) + self.norm(self.words(ids)))


class LooksUpOnce(columns.Layer):
    """Use what was looked up once in both places, with a gradient that is ``more`` in one."""

    def __init__(self, more: float) -> None:
        self.table, self.more = columns.Embed(7, 4), more
        self.scale, self.a, self.b = columns.LayerNormalization(4), columns.Dense(4, 4), columns.Dense(4, 3)

    def forward(self, ids: Any) -> Any:
        held = self.table(ids)
        first = F.tanh(self.a(held))
        if self.more:
            held = held + (held - columns.Tensor(held.data)) * self.more
        return self.b(first + self.scale(held))


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("more", [0.0, 0.01])
def test_one_call_takes_the_gradients_of_two(more: float, turned: bool) -> None:
    models = LooksUpTwice(), LooksUpOnce(more)
    report = padiff.diff(*(models[::-1] if turned else models), IDS)
    assert report.aligned == (not more), str(report)
    assert {source.candidate.path for source in report.sources} <= {""}, str(report)


class Shared(rows.Module):
    """A block of three layers that is called on two inputs, and a head on what it gave last."""

    def __init__(self) -> None:
        self.block = rows.Sequential(rows.Linear(4, 4), rows.Tanh(), rows.Linear(4, 4), rows.Linear(4, 4))

    def forward(self, x: Any, y: Any) -> Any:
        x, y = self.block(x), self.block(y)
        return x - 2 * y


class Block(columns.Layer):
    def __init__(self, faulty: str) -> None:
        self.one, self.two, self.three = (columns.Dense(4, 4) for _ in range(3))
        self.faulty = faulty

    def forward(self, x: Any) -> Any:
        x = self.one(x * 0.9 if self.faulty == "one" else x)
        x = F.sigmoid(x) if self.faulty == "two" else F.tanh(x)
        return self.three(self.two(x))


class SharedBackwards(columns.Layer):
    """The same, called on the second input first."""

    def __init__(self, faulty: str = "") -> None:
        self.block = Block(faulty)

    def forward(self, x: Any, y: Any) -> Any:
        y = self.block(y)
        return self.block(x) - 2 * y


@pytest.mark.parametrize("faulty", ["", "one", "two"])
def test_calls_behind_a_fault_belong_to_the_calls_that_they_were_made_in(faulty: str) -> None:
    """CycleGAN's generators: behind a fault calls were taken in their order, and 22 sources were told."""
    report = padiff.diff(Shared(), SharedBackwards(faulty), (TOKENS, TOKENS[::-1].copy()))
    assert report.aligned is (not faulty)
    assert [source.what.name for source in report.sources] == ["x"] * bool(faulty), str(report)
    assert {source.candidate.path for source in report.sources} <= {"block"}
    assert {source.between[-1] for source in report.sources} <= {faulty}


class Residual(rows.Module):
    """A norm in front of one branch."""

    def __init__(self) -> None:
        self.norm, self.linear = rows.BatchNorm(4), rows.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return x + self.linear(self.norm(x))


class Tracking(columns.BatchNormalization):
    """A norm that tracks variances without Bessel's correction."""

    def forward(self, x: Any) -> Any:
        kept = self.moving_variance.data * self.keep
        y = super().forward(x)
        share = (len(x.data) - 1) / len(x.data)
        self.moving_variance.data[...] = kept + (self.moving_variance.data - kept) * share
        return y


class NormedTwice(columns.Layer):
    """The same in a framework of the other convention; or with the norm in front of both branches."""

    def __init__(self, *, both: bool) -> None:
        self.norm, self.linear, self.both = Tracking(4), columns.Dense(4, 4), both

    def forward(self, x: Any) -> Any:
        return (self.norm(x) if self.both else x) + self.linear(self.norm(x))


@pytest.mark.parametrize("both", [False, True])
def test_one_call_more_is_one_fault_whatever_the_convention_of_variances(*, both: bool) -> None:
    """The variance was a source as well: replayed by itself it differs by the convention, which was not known there."""
    report = padiff.diff(Residual(), NormedTwice(both=both), TOKENS)
    assert [source.what.kind for source in report.sources] == ["output"][:both], str(report)


class Repeated(rows.Module):
    """Blocks that are called twice each, with a packed projection in them."""

    def __init__(self, blocks: int, turned: bool) -> None:
        self.first, self.last = rows.Linear(4, 4), rows.Linear(4, 2)
        self.blocks = rows.ModuleList(*(Gated(turned) for _ in range(blocks)))

    def forward(self, x: Any) -> Any:
        x = self.first(x)
        for block in self.blocks:
            x = block(block(x))
        return self.last(x)


class Gated(rows.Module):
    def __init__(self, turned: bool) -> None:
        self.norm, self.both, self.down = rows.LayerNorm(4), rows.Linear(4, 12), rows.Linear(6, 4)
        self.turned = turned

    def forward(self, x: Any) -> Any:
        both = self.both(self.norm(x))
        gate, up = (both[:, 6:], both[:, :6]) if self.turned else (both[:, :6], both[:, 6:])
        return x + self.down(F.sigmoid(gate) * up)


class GatedByTwo(columns.Layer):
    def __init__(self, fault: str = "") -> None:
        self.out, self.up, self.gate = columns.Dense(6, 4), columns.Dense(4, 6), columns.Dense(4, 6)
        self.ln, self.fault = columns.LayerNormalization(4), fault

    def forward(self, x: Any) -> Any:
        y = self.ln(x)
        return x + self.out((F.tanh if self.fault else F.sigmoid)(self.gate(y)) * self.up(y))


class Copied(columns.Layer):
    """The same with a block for each call, or with as many of its own as are called twice."""

    def __init__(self, blocks: int, copies: bool, fault: str = "") -> None:
        self.head, self.stem = columns.Dense(4, 2), columns.Dense(4, 4)
        faults = ["", fault] * blocks if copies else [""] * blocks
        self.blocks, self.times = columns.Layers(*(GatedByTwo(one) for one in faults)), 1 if copies else 2

    def forward(self, x: Any) -> Any:
        x = self.stem(x)
        for block in self.blocks:
            for _ in range(self.times):
                x = block(x)
        return self.head(x)


@pytest.mark.parametrize(
    ("blocks", "copies", "fault", "turned"),
    [
        (1, False, "", False),
        (1, False, "", True),
        (1, True, "", False),
        (1, True, "", True),
        (1, True, "tanh", False),
        (2, True, "", True),
        (2, True, "tanh", False),
        (3, True, "", False),
    ],
)
def test_copies_of_a_block_that_is_called_twice_are_one_source(
    blocks: int, copies: bool, fault: str, turned: bool
) -> None:
    """All that the second one holds was told as missing, and each gradient of the first one as changed on its way.

    Of two blocks that are called twice the packed layers were matched with those of the first one's copy.
    """
    report = padiff.diff(Repeated(blocks, turned), Copied(blocks, copies, fault), (TOKENS,))
    tied = [one for one in report.sources if one.cause is not None and one.cause.name == "tied"]
    assert len(tied) == 8 * blocks * copies, str(report)
    wrong = ["blocks.1", "blocks.3"][:blocks] if fault else []
    assert [one.candidate.path for one in report.sources if one not in tied] == wrong, str(report)
    assert repr(report) == f"<Report: not aligned: 1 source in {8 * blocks} places>" or not copies or fault
    forward = padiff.diff(Repeated(blocks, turned), Copied(blocks, copies, fault), (TOKENS,), phase="forward")
    assert forward.aligned == (not fault), str(forward)
    turned_round = padiff.diff(Copied(blocks, copies, fault), Repeated(blocks, turned), (TOKENS,))
    assert len(turned_round.sources) == 8 * blocks * copies or fault, str(turned_round)


def scaled(base: Any, tensor: Any, linear: Any, norm: Any) -> Any:
    """Return a module of a layer and a scale of its own, and the norm in front of it."""

    class Scaled(base):
        def __init__(self) -> None:
            self.layer = linear(4, 4)
            scale = np.random.default_rng(0).standard_normal(4, dtype=np.float32)
            self.scale = tensor(scale, requires_grad=True, role="parameter")

        def forward(self, x: Any) -> Any:
            return F.tanh(self.layer(x)) * self.scale

    return Scaled(), norm(4)


class Scaled(rows.Module):
    """A residual block of both, which has the module's name."""

    def __init__(self) -> None:
        self.mixer, self.norm = scaled(rows.Module, rows.Tensor, rows.Linear, rows.LayerNorm)

    def forward(self, x: Any) -> Any:
        return x + self.mixer(self.norm(x))


class Flat(columns.Layer):
    """Two of these without modules of their own, the norm of the first one called in both of them, or not."""

    def __init__(self, twice: bool) -> None:
        parts = columns.Layer, columns.Tensor, columns.Dense, columns.LayerNormalization
        (self.one, self.ahead), (self.two, self.behind) = scaled(*parts), scaled(*parts)
        self.twice = twice

    def forward(self, x: Any) -> Any:
        x = x + self.one(self.ahead(x))
        return x + self.two((self.ahead if self.twice else self.behind)(x))


@pytest.mark.parametrize("twice", [False, True])
def test_what_holds_parameters_itself_is_no_block_around_it(twice: bool) -> None:
    """Without the unused norm both held the same: the block was its mixer, and its sum and its norm sources, too."""
    report = padiff.diff(rows.Sequential(Scaled(), Scaled()), Flat(twice), TOKENS)
    assert [source.candidate.path for source in report.sources] == ["ahead"] * twice, str(report)


def bent(base: Any, linear: Any, *faults: str) -> Any:
    """Return a model that bends what a layer gives, and uses that in many places: for a layer, and step by step."""

    class Net(base):
        def __init__(self) -> None:
            self.first, self.then, self.last = linear(4, 4), linear(4, 4), linear(4, 4)

        def forward(self, x: Any) -> Any:
            h = self.first(x)
            if "bent" not in faults:
                h = F.sigmoid(h)
            y = self.then(h)
            for number in range(4):
                y = (F.relu if "step" in faults else F.tanh)(y * h) + F.sigmoid(h * (number + 1.0))
            return self.last(y)

    return Net()


@pytest.mark.parametrize(
    ("faults", "first"),
    [(("bent",), "1 source in 2 places"), (("step",), "1 source"), (("bent", "step"), "2 sources")],
)
def test_a_function_left_out_is_one_source_whatever_uses_its_value(faults: tuple[str, ...], first: str) -> None:
    """Each of the many calls that took the value was put right by itself, and the last of them was another source."""
    ours = bent(rows.Module, rows.Linear)
    assert padiff.diff(ours, bent(columns.Layer, columns.Dense), (TOKENS,)).aligned
    report = padiff.diff(ours, bent(columns.Layer, columns.Dense, *faults), (TOKENS,))
    assert str(report).startswith(f"not aligned: {first} ("), report
    assert all(source.cause for source in report.sources), report


class OfOne(rows.Module):
    """An attention to what it is given."""

    def __init__(self) -> None:
        self.q, self.k = rows.Linear(4, 4), rows.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return F.softmax(self.q(x)) * self.k(x)


class OfTwo(columns.Layer):
    """The same, which is given queries and memory."""

    def __init__(self) -> None:
        self.q, self.k = columns.Dense(4, 4), columns.Dense(4, 4)

    def forward(self, query: Any, memory: Any) -> Any:
        return F.softmax(self.q(query)) * self.k(memory)


class Attending(rows.Module):
    def __init__(self) -> None:
        self.stem, self.attention, self.head = rows.Linear(4, 4), OfOne(), rows.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        x = F.tanh(self.stem(x))
        return self.head(self.attention(x))


class AttendingToItself(columns.Layer):
    def __init__(self, scale: float, other: float) -> None:
        self.stem, self.attention, self.head = columns.Dense(4, 4), OfTwo(), columns.Dense(4, 4)
        self.scale, self.other = scale, other

    def forward(self, x: Any) -> Any:
        x = F.tanh(self.stem(x))
        if self.scale != 1:
            x = x * self.scale
        return self.head(self.attention(x, x if self.other == 1 else x * self.other))


@pytest.mark.parametrize(("scale", "other"), [(1, 1), (1.0003, 1), (1.5, 1), (1, 1.0003)])
def test_what_is_given_twice_where_the_reference_gives_it_once_is_one_value(scale: float, other: float) -> None:
    report = padiff.diff(Attending(), AttendingToItself(scale, other), TOKENS)
    assert report.aligned == (scale == other == 1), str(report)
    places = [(source.what.kind, source.between) for source in report.sources]
    wrong = [("input", ("stem", "attention"))] * (scale != 1) + [("input", ("q", "k"))] * (other != 1)
    assert places == wrong, str(report)


class ToMemory(rows.Module):
    """An attention that weighs what its memory holds in the mean."""

    def __init__(self) -> None:
        self.q, self.k = rows.Linear(4, 4), rows.Linear(4, 4)

    def forward(self, x: Any, memory: Any) -> Any:
        return F.softmax(self.q(x)) * F.tanh(self.k(memory)).mean()


class ToMemoryTurned(columns.Layer):
    def __init__(self) -> None:
        self.q, self.k = columns.Dense(4, 4), columns.Dense(4, 4)

    def forward(self, x: Any, memory: Any) -> Any:
        return F.softmax(self.q(x)) * F.tanh(self.k(memory)).mean()


def test_what_is_given_twice_where_the_reference_gives_something_else_is_told_at_the_call() -> None:
    class Reference(rows.Module):
        def __init__(self) -> None:
            self.stem, self.attention = rows.Linear(4, 4), ToMemory()

        def forward(self, x: Any, memory: Any) -> Any:
            return self.attention(F.tanh(self.stem(x)), memory)

    class Candidate(columns.Layer):
        def __init__(self) -> None:
            self.stem, self.attention = columns.Dense(4, 4), ToMemoryTurned()

        def forward(self, x: Any, memory: Any) -> Any:
            x = F.tanh(self.stem(x))
            return self.attention(x, x)

    memory = np.random.default_rng(1).standard_normal((5, 4)).astype(np.float32)
    report = padiff.diff(Reference(), Candidate(), (TOKENS, memory))
    (source,) = report.sources
    assert (source.reference.path, source.candidate.path) == ("attention", "attention"), str(report)
    assert "memory has no counterpart" in str(report)
