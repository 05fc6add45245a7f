"""Apply a layer to values of another shape: nothing else in the code around it is spared a comparison for that."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.forcing import Bench
from padiff.report import Phase
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

TOKENS = np.random.default_rng(0).standard_normal((2, 5, 4)).astype(np.float32)


class Net(rows.Module):
    """Two layers on (batch, time, features), one norm, a head."""

    def __init__(self, p: float = 0.0) -> None:
        self.up, self.drop, self.down = rows.Linear(4, 6), rows.Dropout(p), rows.Linear(6, 4)
        self.norm, self.head = rows.LayerNorm(4), rows.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        y = self.down(self.drop(F.relu(self.up(x))))
        return self.head(self.norm(x + y) * 0.5)


class Port(columns.Layer):
    """The same with its first layers on (batch * time, features), and one fault in the code around them."""

    def __init__(self, fault: str = "", p: float = 0.0) -> None:
        self.out, self.ln = columns.Dense(4, 3), columns.LayerNormalization(4)
        self.second, self.drop, self.first = columns.Dense(6, 4), columns.Drop(1 - p), columns.Dense(4, 6)
        self.fault = fault

    def forward(self, x: Any) -> Any:
        y = self.first(x.reshape(10, 4))
        y = F.tanh(y) if self.fault == "inside" else F.relu(y)
        y = self.second(self.drop(y)).reshape(2, 5, 4)
        y = columns.Tensor(y.data) if self.fault == "detached" else y
        y = self.ln(x + y * (1.01 if self.fault == "before the norm" else 1))
        return self.out(y * (0.51 if self.fault == "after the norm" else 0.5))


BETWEEN = {
    "inside": ("first", "drop"),
    "before the norm": ("second", "ln"),
    "after the norm": ("ln", "out"),
    "detached": ("second", "ln"),
}


@pytest.mark.parametrize("p", [0.0, 0.4])
def test_a_right_port_is_aligned(p: float) -> None:
    report = padiff.diff(Net(p), Port(p=p), TOKENS)
    assert report.aligned, str(report)


@pytest.mark.parametrize("fault", BETWEEN)
def test_a_fault_in_the_code_around_is_named_there(fault: str) -> None:
    """Version 0.4 judged nothing more in the code around: what differed there had no place, or passed."""
    report = padiff.diff(Net(), Port(fault), TOKENS)
    (source,) = report.sources
    assert source.candidate.path == "", str(report)
    assert source.between == BETWEEN[fault], str(report)
    assert source.phase is (Phase.BACKWARD if fault == "detached" else Phase.FORWARD), str(report)


def mapping(base: Any, linear: Any, norm: Any, fault: str = "", *, image: bool = False) -> Any:
    """Return blocks of layers on the tokens of an image, or on its rows and columns, some in windows of four pixels."""

    class Block(base):
        def __init__(self, size: int) -> None:
            self.size, self.linear, self.norm, self.out = size, linear(4, 4), norm(4), linear(4, 4)

        def forward(self, x: Any) -> Any:
            y = F.tanh(self.linear(x)) * (1.5 if fault == "scaled" else 1)
            half = self.size // 2
            y = self.norm(y).reshape(2, half, 2, half, 2, 4).transpose(0, 1, 3, 2, 4, 5)
            y = (
                (y if image else self.out(y.reshape(-1, 4, 4)))
                .reshape(2, half, half, 2, 2, 4)
                .transpose(0, 1, 3, 2, 4, 5)
            )
            y = self.out(y.reshape(2, self.size, self.size, 4)) if image else y.reshape(2, self.size**2, 4)
            return x + y * (1.1 if fault == "summed" else 1)

    class Model(base):
        def __init__(self) -> None:
            self.first, self.one, self.two, self.head = linear(4, 4), Block(4), Block(4), linear(4, 3)

        def forward(self, x: Any) -> Any:
            x = self.first(x if image else x.reshape(2, 16, 4))
            x = self.two(self.one(x))
            return self.head(x.mean((1, 2)) if image else x.mean(1))

    return Model()


@pytest.mark.parametrize(
    ("fault", "places"),
    [
        ("", []),
        ("scaled", [("one", ("linear", "norm")), ("two", ("linear", "norm"))]),
        ("summed", [("one", ("out", "end")), ("two", ("out", "end"))]),
    ],
)
def test_tokens_are_the_pixels_of_a_map(fault: str, places: list[tuple[str, tuple[str, str]]]) -> None:
    """Nothing between was compared: whatever was wrong inside was the whole model's, before its head.

    What takes the pixels in windows has no counterpart: no axes of the map are one there.
    """
    image = np.random.default_rng(0).standard_normal((2, 4, 4, 4)).astype(np.float32)
    ours = mapping(rows.Module, rows.Linear, rows.LayerNorm)
    theirs = mapping(columns.Layer, columns.Dense, columns.LayerNormalization, fault, image=True)
    report = padiff.diff(ours, theirs, (image,))
    assert [(source.candidate.path, source.between) for source in report.sources] == places, str(report)


def squeezing(base: Any, linear: Any, function: Any, *, keep: bool = False) -> Any:
    """Return a block that scales its channels by what two layers make of their means, which keep their axes or not."""

    class Block(base):
        def __init__(self) -> None:
            self.down, self.up = linear(4, 3), linear(3, 4)

        def forward(self, x: Any) -> Any:
            y = F.sigmoid(self.up(function(self.down(x.mean(1, keepdims=keep)))))
            return x * y.reshape(2, 1, 4)

    class Model(base):
        def __init__(self) -> None:
            self.one, self.two = Block(), Block()

        def forward(self, x: Any) -> Any:
            return self.two(self.one(x))

    return Model()


@pytest.mark.parametrize("function", [F.relu, F.tanh])
def test_axes_of_one_element_are_none(function: Any) -> None:
    """The block was named, without a cause, as long as no value inside had a counterpart."""
    ours = squeezing(rows.Module, rows.Linear, F.relu, keep=True)
    report = padiff.diff(ours, squeezing(columns.Layer, columns.Dense, function), TOKENS)
    told = [] if function is F.relu else [(name, ("down", "up")) for name in ("one", "two")]
    assert [(source.candidate.path, source.between) for source in report.sources] == told, str(report)
    assert all(source.cause for source in report.sources), str(report)


def merging(base: Any, linear: Any, axes: tuple[int, int]) -> Any:
    """Return a model whose module brings two rows of tokens together: of one sequence, or of two."""

    class Merge(base):
        def __init__(self) -> None:
            self.linear = linear(8, 4)

        def forward(self, x: Any) -> Any:
            return self.linear(x.transpose(*axes, 2).reshape(axes[0] * 2 + 2, -1, 8))

    class Model(base):
        def __init__(self) -> None:
            self.first, self.merge, self.head = linear(4, 4), Merge(), linear(4, 3)

        def forward(self, x: Any) -> Any:
            return self.head(self.merge(self.first(x)))

    return Model()


def test_an_output_of_another_shape_is_named_where_the_shapes_part() -> None:
    """The last layer was named, which only hands on the shape that it is given."""
    report = padiff.diff(
        merging(rows.Module, rows.Linear, (0, 1)), merging(columns.Layer, columns.Dense, (1, 0)), TOKENS[:, :4]
    )
    (source,) = report.sources
    assert source.candidate.path == "merge", str(report)


def pooling(base: Any, linear: Any, fault: str) -> Any:
    """Return a model that takes the mean of what two layers give, over time, and what a third one gives beside them."""

    class Pool(base):
        def __init__(self) -> None:
            self.one, self.two, self.head = linear(4, 6), linear(6, 6), linear(6, 3)
            self.side = linear(6, 2)

        def forward(self, x: Any) -> Any:
            x = F.tanh(self.one(x))
            side = self.side(x[:, 1:] if fault == "a branch beside" else x)
            x = self.two(x[:, :3] if fault == "fewer tokens" else x)
            x = x.mean(0) if fault == "the other axis" else x.mean(1, keepdims=fault == "an axis is kept")
            x = self.head(x)
            return (x.reshape(3, 2) if fault == "behind all layers" else x), F.tanh(side)

    return Pool()


@pytest.mark.parametrize(
    ("fault", "between", "told"),
    [
        ("a branch beside", ("one", "side"), "is given x float32[2, 5, 6], the candidate's x float32[2, 4, 6]"),
        ("fewer tokens", ("side", "two"), "is given x float32[2, 5, 6], the candidate's x float32[2, 3, 6]"),
        ("the other axis", ("two", "head"), "is given x float32[2, 6], the candidate's x float32[5, 6]"),
        ("an axis is kept", ("two", "head"), "is given x float32[2, 6], the candidate's x float32[2, 1, 6]"),
        ("behind all layers", ("head", "end"), "[0] float32[3, 2]"),
    ],
)
def test_code_that_changes_a_shape_is_named_between_the_layers_around_it(
    fault: str, between: tuple[str, str], told: str
) -> None:
    """It was the whole model, or the code behind the layer that was given the wrong shape."""
    report = padiff.diff(pooling(rows.Module, rows.Linear, ""), pooling(columns.Layer, columns.Dense, fault), TOKENS)
    (source,) = report.sources
    assert source.between == between, str(report)
    assert any(told in str(one) for one in source.evidence), str(report)


def test_a_value_of_another_shape_says_both_shapes() -> None:
    """It read: inf relative L2, not finite, not settled in float64."""
    image = np.random.default_rng(0).standard_normal((2, 3, 6, 6)).astype(np.float32)
    report = padiff.diff(rows.Conv2d(3, 4, 3), rows.Conv2d(3, 4, 3, padding=1), image)
    assert "output has another shape" in str(report), str(report)
    assert "the reference returns a tensor float32[2, 4, 4, 4]" in str(report), str(report)
    assert not any(word in str(report) for word in (" inf ", "float64")), str(report)


AROUND = ("give", "give half", "give and double")


def gating(base: Any, linear: Any, does: str) -> Any:
    """Return a model with a gate as a module, which multiplies itself or leaves that to the code around it."""

    class Gate(base):
        def __init__(self) -> None:
            self.linear = linear(4, 4)

        def forward(self, x: Any) -> Any:
            gate = F.sigmoid(self.linear(x.mean(1)).reshape(2, 1, 4))
            return {"multiply": x * gate, "forget": x, "give": gate, "give half": gate * 0.5}.get(does, gate)

    class Block(base):
        def __init__(self) -> None:
            self.inner, self.gate, self.outer = linear(4, 4), Gate(), linear(4, 4)

        def forward(self, x: Any) -> Any:
            y = self.inner(x)
            y = self.gate(y) * y if does in AROUND else self.gate(y)
            return y + self.outer(x) * (2 if does == "give and double" else 1)

    class Model(base):
        def __init__(self) -> None:
            self.block, self.head = Block(), linear(4, 3)

        def forward(self, x: Any) -> Any:
            return self.head(self.block(x))

    return Model()


def test_a_gate_that_is_multiplied_around_it_is_right() -> None:
    multiplied = gating(rows.Module, rows.Linear, "multiply")
    assert padiff.diff(multiplied, gating(columns.Layer, columns.Dense, "give"), TOKENS).aligned


@pytest.mark.parametrize(
    ("does", "path"),
    [
        ("give it alone", "block.gate"),
        ("forget", "block.gate"),
        ("give half", "block"),
        ("give and double", "block"),
    ],
)
def test_a_child_of_another_shape_is_named_where_its_value_in_the_others_shape_is_right(does: str, path: str) -> None:
    """The code around was named; and for a child that hands on what it is given, who made that."""
    report = padiff.diff(
        gating(rows.Module, rows.Linear, "multiply"), gating(columns.Layer, columns.Dense, does), TOKENS
    )
    assert [source.candidate.path for source in report.sources] == [path], str(report)


def judging(base: Any, conv: Any, linear: Any, axes: tuple[int, ...]) -> Any:
    """Return a model that judges an image that it makes, and the one that it is given."""

    class Critic(base):
        def __init__(self) -> None:
            self.conv, self.norm, self.last = conv(3, 4, 1), linear(4, 4), linear(4, 1)

        def forward(self, x: Any) -> Any:
            y = F.relu(self.conv(x).transpose(*np.argsort(axes)))
            return self.last(self.norm(y.mean(3).mean(2)))

    class Model(base):
        def __init__(self, padding: int) -> None:
            self.maker, self.critic = conv(3, 3, 3, padding=padding), Critic()

        def forward(self, x: Any) -> Any:
            x = x.transpose(*axes)
            made = self.maker(x)
            return made.transpose(*np.argsort(axes)), self.critic(made), self.critic(x)

    return Model


def test_what_takes_a_value_whose_shape_a_fault_changed_is_no_source() -> None:
    """The critic was one, too: it takes the mean over an image of another size."""
    reference = judging(rows.Module, rows.Conv2d, rows.Linear, (0, 1, 2, 3))(1)
    port = judging(columns.Layer, columns.Conv, columns.Dense, (0, 2, 3, 1))
    images = np.random.default_rng(0).standard_normal((2, 3, 5, 6)).astype(np.float32)
    assert padiff.diff(reference, port(1), images).aligned
    report = padiff.diff(reference, port(0), images)
    assert [source.candidate.path for source in report.sources] == ["maker", ""], str(report)  # and the output


def listing(base: Any, linear: Any, names: str, sizes: tuple[int, ...]) -> Any:
    class Net(base):  # type: ignore[misc]
        def __init__(self) -> None:
            for name, both in zip(names, itertools.pairwise(sizes), strict=True):
                setattr(self, name, linear(*both))

        def forward(self, x: Any) -> Any:
            for name in names:
                x = F.tanh(getattr(self, name)(x))
            return x

    return Net()


def test_layers_of_other_sizes_are_told_apart_by_their_place_whatever_their_names() -> None:
    wide = listing(columns.Layer, columns.Dense, "xyz", (4, 6, 8, 3))
    report = padiff.diff(listing(rows.Module, rows.Linear, "abc", (4, 6, 5, 3)), wide, TOKENS)
    assert {(one.reference.path, one.candidate.path) for one in report.sources} == {("b", "y"), ("c", "z")}, str(report)
    assert str(report).startswith("not aligned: 3 sources in 4 places"), str(report)  # the bias of z would fit
    assert all(one.evidence[0].kind.endswith("other_shape") for one in report.sources), str(report)


def cropping(base: Any, linear: Any, width: int) -> Any:
    """Return a model with two outputs: a part of what a layer gives, which its module cuts out, and another layer's."""

    class Crop(base):
        def __init__(self) -> None:
            self.linear = linear(4, 4)

        def forward(self, x: Any) -> Any:
            return self.linear(x)[..., :width]

    class Model(base):
        def __init__(self) -> None:
            self.crop, self.head = Crop(), linear(4, 3)

        def forward(self, x: Any) -> Any:
            part = self.crop(x)
            return part, self.head(x)

    return Model()


def test_one_of_two_outputs_of_another_shape_is_named_where_it_is_made() -> None:
    report = padiff.diff(cropping(rows.Module, rows.Linear, 3), cropping(columns.Layer, columns.Dense, 2), TOKENS)
    (source,) = report.sources
    assert source.candidate.path == "crop", str(report)


class Tokenwise(columns.BatchNormalization):
    """A norm that keeps its statistics as they were."""

    def forward(self, x: Any) -> Any:
        moving = [columns.Tensor(one.data.copy()) for one in (self.moving_mean, self.moving_variance)]
        return F.batch_norm(x, self.gamma, self.beta, *moving, eps=1e-5, momentum=0.1, training=True, axis=-1)


@pytest.mark.parametrize("norm", [columns.BatchNormalization, Tokenwise])
def test_statistics_of_values_in_another_shape_are_compared(norm: Any) -> None:
    """They passed, whatever they were."""

    class Ours(rows.Module):
        def __init__(self) -> None:
            self.linear, self.norm = rows.Linear(4, 4), rows.BatchNorm(4)

        def forward(self, x: Any) -> Any:
            return self.norm(self.linear(x).transpose(0, 2, 1)).transpose(0, 2, 1)

    class Theirs(columns.Layer):
        def __init__(self) -> None:
            self.linear, self.norm = columns.Dense(4, 4), norm(4)

        def forward(self, x: Any) -> Any:
            return self.norm(self.linear(x).reshape(10, 4)).reshape(2, 5, 4)

    report = padiff.diff(Ours(), Theirs(), TOKENS)
    assert [source.phase for source in report.sources] == [Phase.BUFFER] * (norm is Tokenwise), str(report)


class Stem(rows.Module):
    """Images through a convolution, a function, and one of its own stride, which gives as many places of some more."""

    def __init__(self, padding: int = 0) -> None:
        self.first, self.second = rows.Conv2d(3, 4, 3, stride=2, padding=padding), rows.Conv2d(4, 4, 2, stride=2)
        self.head = rows.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        return self.head(self.second(F.relu(self.first(x))).mean((2, 3)))


def test_another_padding_is_named_where_what_follows_has_one_shape_again() -> None:
    """The next layer is given another shape, too: no code around crops it, which was the source."""
    images = np.random.default_rng(0).standard_normal((2, 3, 9, 9)).astype(np.float32)
    (source,) = padiff.diff(Stem(), Stem(padding=1), (images,)).sources
    assert (source.candidate.path, source.cause and source.cause.name) == ("first", "settings"), str(source)


def flattening(base: Any, linear: Any, count: int, flat: bool) -> Any:
    """Return a model of blocks, which may give their tokens flat; the code around scales those of one that does."""

    class Block(base):
        def __init__(self) -> None:
            self.linear = linear(4, 4)

        def forward(self, x: Any) -> Any:
            y = F.tanh(self.linear(x))
            return y.reshape(4, 10) if flat else y  # no row of it is one of the tokens

    class Model(base):
        def __init__(self) -> None:
            for number in range(count):
                setattr(self, f"block{number}", Block())

        def forward(self, x: Any) -> Any:
            for number in range(count):
                x = x + getattr(self, f"block{number}")(x).reshape(2, 5, 4) * (1.01 if flat else 1)
            return x

    return Model()


def test_a_value_of_another_shape_is_put_in_once_for_all_that_stands_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of twice as many blocks the whole model ran four times as often: 24 seconds of 32 blocks."""
    runs: list[int] = []
    run = Bench.run
    monkeypatch.setattr(Bench, "run", lambda *a, **k: (runs.append(0), run(*a, **k))[1])
    monkeypatch.setattr("padiff.engine._diff.explain_code", lambda *_: None)  # its replays have a bound of their own
    counts = []
    for count in (4, 8, 16):
        runs.clear()
        ours, theirs = (rows.Module, rows.Linear, count, False), (columns.Layer, columns.Dense, count, True)
        assert len(padiff.diff(flattening(*ours), flattening(*theirs), TOKENS).sources) == count
        counts.append(len(runs))
    assert counts[2] - counts[1] < 2.5 * (counts[1] - counts[0]), counts


def recalling(base: Any, linear: Any, fault: float = 1.0, *, apart: bool = False) -> Any:
    """Return a block that is called twice on a memory, or on the keys that are made of it, in two heads."""

    class Block(base):
        def __init__(self) -> None:
            self.inner, self.key, self.out = linear(4, 4), linear(4, 4), linear(4, 4)

        def forward(self, x: Any, memory: Any, past: Any) -> Any:
            keys = memory if apart else self.key(memory).reshape(2, 5, 2, 2).transpose(0, 2, 1, 3)
            x = (self.inner(x) * fault).reshape(2, 5, 2, 2).transpose(0, 2, 1, 3)
            y = F.softmax(x @ keys.transpose(0, 1, 3, 2)) @ keys
            y = y if past is None else y + (past if apart else past.reshape(2, 5, 2, 2).transpose(0, 2, 1, 3))
            y = self.out(y.transpose(0, 2, 1, 3).reshape(2, 5, 4))
            return y, x if apart else x.transpose(0, 2, 1, 3).reshape(2, 5, 4)

    class Model(base):
        def __init__(self) -> None:
            self.first, self.block = linear(4, 4), Block()

        def forward(self, x: Any) -> Any:
            memory = F.tanh(self.first(x))
            memory = self.block.key(memory).reshape(2, 5, 2, 2).transpose(0, 2, 1, 3) if apart else memory
            y, past = self.block(x, memory, None)
            return self.block(x + y, memory, past)[0]

    return Model()


@pytest.mark.parametrize("fault", [1.0, 1.2, 3.0])
def test_what_one_side_is_given_instead_is_nothing_in_another_shape(fault: float) -> None:
    """The past of the second call is in heads: the memory, of which the keys are made, was taken for these as well."""
    ours = recalling(rows.Module, rows.Linear)
    report = padiff.diff(ours, recalling(columns.Layer, columns.Dense, fault, apart=True), (TOKENS,))
    assert {source.candidate.path for source in report.sources} == (set() if fault == 1 else {"block"}), str(report)


def gated(base: Any, linear: Any, *, thinned: bool, slope: float = 1.0) -> Any:
    """Return blocks that scale what they are given by what they make of its mean; behind every second token, or all."""

    class Block(base):
        def __init__(self) -> None:
            self.linear, self.gate = linear(4, 4), linear(4, 4)

        def forward(self, x: Any) -> Any:
            y = F.tanh(self.linear(x)) * slope
            return x + y * F.sigmoid(self.gate(y.mean(1, keepdims=True)))

    class Model(base):
        def __init__(self) -> None:
            self.first, self.one, self.two, self.head = linear(4, 4), Block(), Block(), linear(4, 3)

        def forward(self, x: Any) -> Any:
            x = self.first(x)
            x = self.two(self.one(x[:, ::2] if thinned else x))
            return self.head(x.mean(1))

    return Model()


def test_what_is_given_too_much_is_the_source_of_all_that_is_made_of_it() -> None:
    """What each block makes of it that has a shape of its own, a mean, was a source, too."""
    ours = gated(rows.Module, rows.Linear, thinned=True)
    report = padiff.diff(ours, gated(columns.Layer, columns.Dense, thinned=False), (TOKENS,))
    assert [(source.candidate.path, source.between) for source in report.sources] == [("", ("first", "one"))], report
    report = padiff.diff(ours, gated(columns.Layer, columns.Dense, thinned=False, slope=1.5), (TOKENS,))
    assert {"one", "two"} <= {source.candidate.path for source in report.sources}, report


def folding(base: Any, linear: Any, by: float = 1.0, *, folds: int = 8) -> Any:
    """Return a model that folds its rows by what they hold, as by the period of a series: large ones into more."""

    class Inner(base):
        def __init__(self) -> None:
            self.a, self.b = linear(4, 4), linear(4, 4)

        def forward(self, x: Any) -> Any:
            return self.a(x) + self.b(F.relu(x))

    class Folding(base):
        def __init__(self) -> None:
            self.stem, self.inner, self.head = linear(4, 4), Inner(), linear(4, 3)

        def forward(self, x: Any) -> Any:
            x = self.stem(self.stem(x) * by)
            n = 2 if np.abs(x.data).max() < 5 else folds
            return self.head(x + self.inner(x.reshape(n, 8 // n, 4)).reshape(8, 4))

    return Folding()


@pytest.mark.parametrize("folds", [4, 8])
def test_a_fault_that_lets_others_fold_otherwise_is_named(folds: int) -> None:
    """What is fed has the reference's shape, where it was another run freely: the report ended in an error.

    Four rows of two could be two of four in another order of axes: then that is told as well.
    """
    inputs = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)
    assert padiff.diff(folding(rows.Module, rows.Linear), folding(columns.Layer, columns.Dense), inputs).aligned
    port = folding(columns.Layer, columns.Dense, 10.0, folds=folds)
    report = padiff.diff(folding(rows.Module, rows.Linear), port, inputs)
    first, *further = report.sources
    assert (first.candidate.path, first.between) == ("", ("stem", "stem")), str(report)
    assert not further or folds == 4, str(report)


def shortening(base: Any, linear: Any, count: int, factor: float = 1.0) -> Any:
    """Return a model that keeps so many of its tokens in one block; the next one gives a mean beside what it makes.

    Without a factor it returns no such mean.
    """

    class Front(base):
        def __init__(self) -> None:
            self.linear = linear(4, 4)

        def forward(self, x: Any) -> Any:
            y = F.tanh(self.linear(x))
            return x + y, y[:, -2:]

    class Down(base):
        def __init__(self) -> None:
            self.linear = linear(4, 4)

        def forward(self, x: Any) -> Any:
            return self.linear(x[:, :count])

    class Coded(base):
        def __init__(self) -> None:
            self.linear = linear(4, 4)

        def forward(self, x: Any) -> Any:
            y = F.tanh(self.linear(x))
            return y, (y * y).mean() * (factor or 1.0)

    class Model(base):
        def __init__(self) -> None:
            self.front, self.down, self.coded = Front(), Down(), Coded()

        def forward(self, x: Any) -> Any:
            x, last = self.front(x)
            x, size = self.coded(self.down(x))
            return (x, size, last) if factor else (x, last)

    return Model()


@pytest.mark.parametrize("factor", [1.0, 0.0])
def test_what_is_made_of_a_value_of_another_size_is_no_source_beside_what_gives_it(factor: float) -> None:
    """The mean was a source of its own; without it a gradient in front of the block was."""
    ours = shortening(rows.Module, rows.Linear, 4, factor)
    report = padiff.diff(ours, shortening(columns.Layer, columns.Dense, 3, factor), TOKENS)
    (source,) = report.sources
    assert source.candidate.path == "down", str(report)
    mean = [finding for finding in report.findings if finding.candidate.path == "coded"]
    assert bool(mean) is bool(factor), str(report)


def test_a_wrong_mean_of_a_value_of_the_right_size_is_a_source() -> None:
    ours = shortening(rows.Module, rows.Linear, 4)
    (source,) = padiff.diff(ours, shortening(columns.Layer, columns.Dense, 4, 2.0), TOKENS).sources
    assert source.candidate.path == "coded", str(source)
