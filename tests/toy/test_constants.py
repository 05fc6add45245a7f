"""Match buffers and frozen parameters that no rule speaks of: state is copied, a constant is compared."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.parameters import _constants
from padiff.report import Note, Phase
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

TOKENS = np.random.default_rng(0).standard_normal((2, 9, 8)).astype(np.float32)


def frequencies(base: float = 100.0) -> Any:
    return (base ** -np.linspace(0, 1, 8)).astype(np.float32)


def frozen(values: Any) -> Any:
    return columns.Tensor(np.array(values, np.float32), role="parameter")


class Rotated(rows.Module):
    """A layer scaled by frequencies that it holds in a buffer, and one with a table of its own."""

    def __init__(self) -> None:
        self.up, self.norm, self.down = rows.Linear(8, 8), rows.LayerNorm(8), rows.Linear(8, 8)
        self.inv_freq = rows.buffer(frequencies())
        self.idle = rows.buffer(np.arange(8))

    def forward(self, x: Any) -> Any:
        return self.down(self.norm(F.tanh(self.up(x) * self.inv_freq)))


class Turned(columns.Layer):
    """The same, with frequencies in a buffer, a frozen parameter, or computed in code."""

    def __init__(self, held: str, base: float = 100.0, fault: str = "") -> None:
        self.last, self.ln, self.first = columns.Dense(8, 8), columns.LayerNormalization(8), columns.Dense(8, 8)
        self.fault = fault
        self.freqs: Any = frequencies(base)
        if held == "buffer":
            self.freqs = columns.statistic(self.freqs)
        elif held == "parameter":
            self.freqs = frozen(self.freqs)
        elif held == "beside":
            self.unused, self.freqs = frozen(self.freqs), columns.Tensor(self.freqs)
        else:
            self.freqs = columns.Tensor(self.freqs)

    def forward(self, x: Any) -> Any:
        y = self.first(x) * self.freqs
        y = self.ln(F.sigmoid(y) if self.fault == "activation" else F.tanh(y))
        return self.last(y * 1.01 if self.fault == "scale" else y)


@pytest.mark.parametrize("held", ["buffer", "parameter", "beside", "code"])
def test_a_constant_may_be_held_otherwise(held: str) -> None:
    report = padiff.diff(Rotated(), Turned(held), TOKENS)
    assert report.aligned, str(report)


@pytest.mark.parametrize("transfer", [True, False])
@pytest.mark.parametrize("held", ["buffer", "parameter"])
def test_a_wrong_constant_is_named_where_it_is_held(held: str, transfer: bool) -> None:
    """The transfer does not hide it, and it stays in the candidate, for the next diff to find."""
    candidate = Turned(held, base=90.0)
    if not transfer:
        padiff.diff(Rotated(), candidate, TOKENS)
    reference = Rotated()
    padiff.diff(reference, candidate, TOKENS)
    own = candidate.freqs.data.copy()
    report = padiff.diff(reference, candidate, TOKENS, transfer=transfer)
    (source,) = report.sources
    assert (source.phase, source.what.name) == (Phase.PARAMETER, "freqs"), str(report)
    assert report.output is not None
    assert report.output.rel_l2 > 0.001  # what a user sees
    assert np.array_equal(own, candidate.freqs.data)
    assert np.array_equal(own, frequencies(90.0))


def test_a_wrong_constant_hides_no_other_fault() -> None:
    report = padiff.diff(Rotated(), Turned("parameter", 90.0, "scale"), TOKENS)
    assert report.sources[0].what.name == "freqs", str(report)
    assert len(report.sources) == 2, str(report)
    assert report.sources[1].between == ("ln", "last"), str(report)


def test_a_right_constant_beside_a_fault_is_no_source() -> None:
    report = padiff.diff(Rotated(), Turned("beside", fault="activation"), TOKENS)
    (source,) = report.sources
    assert source.between == ("first", "ln"), str(report)


class Circled(rows.Module):
    """Tokens beside a table whose sines are zero but for rounding: of halves of a circle, computed in float32."""

    def __init__(self) -> None:
        self.up, self.down = rows.Linear(10, 8), rows.Linear(8, 8)
        angles = np.broadcast_to(np.float32(np.pi) * (np.arange(9) % 3 - 1), (2, 9)).astype(np.float32)
        self.circle = rows.buffer(np.stack([np.sin(angles), np.cos(angles)], -1))

    def forward(self, x: Any) -> Any:
        return self.down(F.tanh(self.up(F.concat([x, self.circle]))))


class CircledPort(columns.Layer):
    """The same, computed in float64 and rounded; or with sines of other numbers, which are small too."""

    def __init__(self, wrong: float) -> None:
        self.last, self.first = columns.Dense(8, 8), columns.Dense(10, 8)
        angles = np.broadcast_to(np.pi * (np.arange(9) % 3 - 1), (2, 9))
        self.table = columns.Tensor(np.stack([np.sin(angles) + wrong, np.cos(angles)], -1).astype(np.float32))

    def forward(self, x: Any) -> Any:
        return self.last(F.tanh(self.first(F.concat([x, self.table]))))


@pytest.mark.parametrize("wrong", [0.0, 3e-6])
def test_zeros_of_a_table_are_rounded_otherwise(wrong: float) -> None:
    report = padiff.diff(Circled(), CircledPort(wrong), TOKENS)
    assert report.aligned == (not wrong), str(report)


class Quantized(rows.Module):
    """Tokens scaled by how near they are to the entries of a codebook, which follows them in training."""

    def __init__(self, decay: float = 0.9) -> None:
        self.inner, self.outer, self.decay = rows.Linear(8, 8), rows.Linear(16, 8), decay
        self.codebook, self.size = rows.buffer(np.random.standard_normal((8, 16))), rows.buffer(np.zeros(16))

    def forward(self, x: Any) -> Any:
        near = F.softmax(self.inner(x) @ self.codebook)
        if self.training:
            used = near.data.mean((0, 1))
            self.size.data[...] = self.decay * self.size.data + (1 - self.decay) * used
        return self.outer(near)


class Codes(columns.Layer):
    """The same under other names, with a codebook that is a frozen parameter or a buffer."""

    def __init__(self, parameter: bool, fault: str = "") -> None:
        self.outside, self.inside, self.fault = columns.Dense(16, 8), columns.Dense(8, 8), fault
        values = np.random.standard_normal((8, 16))
        self.entries = frozen(values) if parameter else columns.statistic(values)
        self.counts = columns.statistic(np.zeros(16))

    def forward(self, x: Any) -> Any:
        near = F.softmax((self.inside(x) * (1.01 if self.fault == "scale" else 1)) @ self.entries)
        if self.training:
            decay = {"decay": 0.8, "epsilon": 0.9 + 2.5e-7}.get(self.fault, 0.9)
            self.counts.data[...] = decay * self.counts.data + (1 - decay) * near.data.mean((0, 1))
        return self.outside(near)


@pytest.mark.parametrize("parameter", [True, False])
@pytest.mark.parametrize("training", [True, False])
def test_a_codebook_is_copied(parameter: bool, training: bool) -> None:
    report = padiff.diff(Quantized().train(training), Codes(parameter).train(training), TOKENS)
    assert report.aligned, str(report)


@pytest.mark.parametrize(
    ("fault", "what"), [("scale", "output"), ("decay", "updated_buffer"), ("epsilon", "updated_buffer")]
)
def test_a_fault_beside_a_codebook_is_named(fault: str, what: str) -> None:
    report = padiff.diff(Quantized(), Codes(True, fault), TOKENS)
    (source,) = report.sources
    assert what in (source.what.kind, "output"), str(report)


class Book(rows.Module):
    """One codebook of several."""

    def __init__(self) -> None:
        self.embed = rows.buffer(np.random.standard_normal((16, 8)))

    def forward(self, x: Any) -> Any:
        return F.softmax(x @ self.embed.transpose(1, 0)) @ self.embed


class Residual(rows.Module):
    """What is left of tokens, book by book, as residual quantizers take it."""

    def __init__(self) -> None:
        self.inner, self.outer = rows.Linear(8, 8), rows.Linear(8, 8)
        self.layers = rows.ModuleList(Book(), Book(), Book())

    def forward(self, x: Any) -> Any:
        x = self.inner(x)
        for layer in self.layers:
            x = x - layer(x)
        return self.outer(x)


class ResidualPort(columns.Layer):
    """The same with the books in one buffer, taken in an order."""

    def __init__(self, order: tuple[int, ...] = (0, 1, 2)) -> None:
        self.last, self.first, self.order = columns.Dense(8, 8), columns.Dense(8, 8), order
        self.books = columns.statistic(np.random.standard_normal((3, 16, 8)))

    def forward(self, x: Any) -> Any:
        x = self.first(x)
        for place in self.order:
            x = x - F.softmax(x @ self.books[place].transpose(1, 0)) @ self.books[place]
        return self.last(x)


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2)])
@pytest.mark.parametrize("turned", [False, True], ids=["stacked", "listed"])
def test_codebooks_are_stacked(order: tuple[int, ...], turned: bool) -> None:
    """They had no counterpart, and a right port was a source."""
    models = Residual(), ResidualPort(order)
    report = padiff.diff(*(models[::-1] if turned else models), TOKENS)
    assert report.aligned == (order == (0, 1, 2)), str(report)


class Divided(rows.Module):
    """A layer divided by its largest singular value, of which it keeps a vector between calls (spectral norm)."""

    def __init__(self) -> None:
        self.inside, self.outside = rows.Linear(8, 6), rows.Linear(6, 8)
        self.weight_u = rows.buffer(turned(self.inside.weight.data))

    def forward(self, x: Any) -> Any:
        return self.outside(self.inside(x) / squares(self.weight_u.reshape(1, 6) @ self.inside.weight))


class Normed(columns.Layer):
    def __init__(self, factor: float = 1.0) -> None:
        self.second, self.first = columns.Dense(6, 8), columns.Dense(8, 6)
        self.weight_u, self.factor = columns.statistic(turned(self.first.kernel.data.T)), factor

    def forward(self, x: Any) -> Any:
        y = self.first(x) * self.factor
        return self.second(y / squares(self.first.kernel @ self.weight_u.reshape(6, 1)))


class Centred(rows.Module):
    """A norm by hand, in evaluation: its mean has too few channels to tell by itself that it is state."""

    def __init__(self) -> None:
        self.up, self.down = rows.Linear(8, 4), rows.Linear(4, 8)
        self.running_mean = rows.buffer(np.arange(4) / 4)

    def forward(self, x: Any) -> Any:
        return self.down(self.up(x) - self.running_mean)


class Shifted(columns.Layer):
    def __init__(self) -> None:
        self.second, self.first = columns.Dense(4, 8), columns.Dense(8, 4)
        self.moving_mean = columns.statistic(np.array([0.3, 0.1, 0.2, 0.5]))

    def forward(self, x: Any) -> Any:
        return self.second(self.first(x) - self.moving_mean)


def test_a_statistic_of_few_channels_is_copied() -> None:
    report = padiff.diff(Centred(), Shifted(), TOKENS)
    assert report.aligned, str(report)


def squares(vector: Any) -> Any:
    return (vector * vector).sum()


def turned(weight: Any) -> Any:
    """Return the vector after a few iterations: those of two models have to do with each other where weights do."""
    vector = np.ones(len(weight))
    for _ in range(3):
        vector = weight @ (weight.T @ vector)
        vector /= np.linalg.norm(vector)
    return vector


def test_the_vector_of_a_power_iteration_is_copied() -> None:
    report = padiff.diff(Divided(), Normed(), TOKENS)
    assert report.aligned, str(report)
    (source,) = padiff.diff(Divided(), Normed(1.1), TOKENS).sources
    assert source.phase is Phase.FORWARD, str(source)


class Narrow(rows.Module):
    """The same of a layer with few features, as torch's parametrization keeps it: both vectors, in evaluation."""

    def __init__(self) -> None:
        self.inside, self.outside = rows.Linear(8, 4), rows.Linear(4, 8)
        self.left, self.right = (rows.buffer(unit(np.random.standard_normal(n))) for n in (4, 8))

    def forward(self, x: Any) -> Any:
        size = self.left.reshape(1, 4) @ self.inside.weight @ self.right.reshape(8, 1)
        return self.outside(self.inside(x) / size.sum())


class NarrowPort(columns.Layer):
    """The same; or with the first layer's vectors, which are constants where they belong to nothing."""

    def __init__(self, power: float = 1.0) -> None:
        self.second, self.first, self.power = columns.Dense(4, 8), columns.Dense(8, 4), power
        self.v, self.u = (columns.statistic(unit(np.random.standard_normal(n))) for n in (8, 4))

    def forward(self, x: Any) -> Any:
        size = self.v.reshape(1, 8) @ self.first.kernel @ self.u.reshape(4, 1)
        return self.second(self.first(x) / size.sum() * self.power)


def unit(vector: Any) -> Any:
    return vector / np.linalg.norm(vector)


def test_few_numbers_of_a_power_iteration_are_copied() -> None:
    """Four numbers tell not whether they are random: one of both vectors was a constant, and wrong, in evaluation."""
    report = padiff.diff(Narrow().train(False), NarrowPort().train(False), TOKENS)
    assert report.aligned, str(report)
    assert report.transfer is not None
    assert report.transfer.buffers == 2
    (source,) = padiff.diff(Narrow().train(False), NarrowPort(1.1).train(False), TOKENS).sources
    assert source.phase is Phase.FORWARD, str(source)


def test_vectors_of_a_power_iteration_that_has_not_run_yet_are_copied() -> None:
    """A candidate that makes them of length one in its first step holds them as drawn: one was a wrong constant."""
    port = NarrowPort().train(False)
    port.u, port.v = (columns.statistic(np.random.standard_normal(n)) for n in (4, 8))
    report = padiff.diff(Narrow().train(False), port, TOKENS)
    assert report.aligned, str(report)


def divided(
    module: Any, linear: Any, buffer: Any, weight: str, names: tuple[str, str], order: tuple[int, ...], given: int
) -> Any:
    class One(module):
        def __init__(self) -> None:
            self.layer = linear(8, given)
            for name, size in zip(names, (given, 8), strict=True):
                setattr(self, name, buffer(unit(np.random.standard_normal(size))))

        def forward(self, x: Any) -> Any:
            left, right = (getattr(self, name).data for name in names)  # behind the dataflow's back
            kept = getattr(self.layer, weight).data
            return self.layer(x) / float(left @ (kept if weight == "weight" else kept.T) @ right)

    class Net(module):
        def __init__(self) -> None:
            self.last = linear(given, 3)
            for place in order:
                setattr(self, "abc"[place], One())

        def forward(self, x: Any) -> Any:
            return self.last(self.a(x) + F.tanh(self.b(x)))

    return Net().train(False)


@pytest.mark.parametrize(
    ("names", "given"), [(("l", "r"), 6), (("_u", "_v"), 8)], ids=["by-shape", "of-one-shape-by-name"]
)
def test_buffers_of_like_layers_go_with_the_weights_beside_them(names: tuple[str, str], given: int) -> None:
    """Several of one shape in modules that others name otherwise were matched with none, and not copied."""
    reference = divided(rows.Module, rows.Linear, rows.buffer, "weight", names, (0, 1), given)
    port = ("weight_u", "weight_v")
    candidate = divided(columns.Layer, columns.Dense, columns.statistic, "kernel", port, (1, 0), given)
    report = padiff.diff(reference, candidate, TOKENS)
    assert report.aligned, str(report)
    assert report.transfer is not None
    assert report.transfer.buffers == 4


class NormByHand(columns.Layer):
    """A norm over the batch by hand, whose gain and bias are of another shape than what it keeps."""

    def __init__(self, fault: float) -> None:
        self.first, self.last, self.fault = columns.Dense(8, 6), columns.Dense(6, 3), fault
        self.moving_mean, self.moving_variance = columns.statistic(np.zeros(6)), columns.statistic(np.ones(6))
        self.scale, self.shift = columns.weight(1, 6), columns.weight(1, 6)

    def forward(self, x: Any) -> Any:
        y = self.first(x)
        y = (y - self.moving_mean) / (self.moving_variance + 1e-5).sqrt()
        return self.last(y * self.scale * self.fault + self.shift)


@pytest.mark.parametrize("fault", [1.0, 1.1], ids=["right", "wrong"])
def test_a_buffer_stands_for_nothing_that_is_trained(fault: float) -> None:
    """The gain was taken for the mean, which lies as the reference's gain does, and told as frozen."""
    norm = rows.BatchNorm(6)
    norm.running_mean.data, norm.running_var.data = np.random.random_sample((2, 6)).astype(np.float32)
    reference = rows.Sequential(rows.Linear(8, 6), norm, rows.Linear(6, 3)).train(False)
    report = padiff.diff(reference, NormByHand(fault).train(False), TOKENS[0])
    assert report.aligned is (fault == 1.0), str(report)
    assert [source.phase for source in report.sources] == [Phase.FORWARD] * (fault != 1.0), str(report)


class Lit(rows.Module):
    """A layer whose features are read along two directions that code gives."""

    def __init__(self, directions: Any) -> None:
        self.inside, self.directions = rows.Linear(8, 4), directions
        self.light, self.eye = map(rows.buffer, directions)

    def forward(self, x: Any) -> Any:
        y = self.inside(x)
        return (y * self.light).sum(-1) + (y * self.eye).sum(-1)


class LitPort(columns.Layer):
    def __init__(self, directions: Any) -> None:
        self.inside = columns.Dense(8, 4)
        self.light, self.eye = map(columns.statistic, directions)

    def forward(self, x: Any) -> Any:
        y = self.inside(x)
        return (y * self.light).sum(-1) + (y * self.eye).sum(-1)


def test_a_wrong_direction_is_a_constant() -> None:
    """Both are of length one, and as long as one axis of the matrix beside them: no more than that."""
    light, eye, wrong = unit(np.array([1.0, 2, 3, 5])), unit(np.array([2.0, 1, 1, 3])), unit(np.array([1.0, 3, 2, 5]))
    assert padiff.diff(Lit((light, eye)), LitPort((light, eye)), TOKENS).aligned
    (source,) = padiff.diff(Lit((light, eye)), LitPort((wrong, eye)), TOKENS).sources
    assert source.what.name == "light", str(source)


class Tables(rows.Module):
    """Tokens looked up in two tables of one shape."""

    def __init__(self) -> None:
        self.keys, self.values = (rows.buffer(np.random.standard_normal((8, 16))) for _ in range(2))

    def forward(self, x: Any) -> Any:
        return F.softmax(x @ self.keys) @ F.tanh(self.values).transpose(1, 0)


class BesideTables(rows.Module):
    def __init__(self) -> None:
        self.up, self.tables, self.down = rows.Linear(8, 8), Tables(), rows.Linear(8, 4)

    def forward(self, x: Any) -> Any:
        return self.down(self.tables(self.up(x)))


class WithTables(columns.Layer):
    def __init__(self) -> None:
        self.first, self.last = columns.Dense(8, 8), columns.Dense(8, 4)
        self.entries = columns.statistic(np.random.standard_normal((8, 16)))
        self.means = columns.statistic(np.random.standard_normal((8, 16)))

    def forward(self, x: Any) -> Any:
        near = F.softmax(self.first(x) @ self.entries)
        return self.last(near @ F.tanh(self.means).transpose(1, 0))


def test_tables_that_the_dataflow_alone_tells_are_copied_where_the_layers_were_copied_before() -> None:
    report = padiff.diff(BesideTables(), WithTables(), TOKENS)
    assert report.aligned, str(report)


def test_a_frozen_parameter_of_one_side_is_a_note_where_nothing_differs() -> None:
    report = padiff.diff(Rotated(), Turned("beside"), TOKENS)
    assert all(isinstance(note, Note) for note in report.notes)


class Positioned(rows.Module):
    """Tokens with a table of positions, held as a frozen embedding, or computed in code."""

    def __init__(self, held: bool, base: float = 100.0) -> None:
        self.head, self.held = rows.Linear(8, 8), held
        self.values = np.cos(np.arange(9)[:, None] * frequencies(base)).astype(np.float32)
        if held:
            self.table = rows.Embedding(9, 8)
            self.table.weight = rows.Tensor(self.values, role="parameter")

    def forward(self, x: Any) -> Any:
        positions = self.table(np.arange(9)) if self.held else rows.Tensor(self.values)
        return self.head(x + positions)


@pytest.mark.parametrize("held", [False, True])
def test_a_frozen_embedding_of_one_side_is_a_note_where_nothing_differs(held: bool) -> None:
    """RoFormer's and CTRL's positions are a frozen embedding on one side, and a constant on the other."""
    report = padiff.diff(Positioned(held), Positioned(not held), TOKENS)
    assert report.aligned, str(report)
    assert "frozen_on_one_side" in {note.kind for note in report.notes}
    report = padiff.diff(Positioned(held), Positioned(not held, 90.0), TOKENS)
    assert [source.candidate.path for source in report.sources] == [""], str(report)


class Scale(rows.Module):
    """A constant of a few numbers."""

    def __init__(self) -> None:
        self.factors = rows.buffer([1.0, 2.0, 3.0, 4.0])

    def forward(self, x: Any) -> Any:
        return x * self.factors


class Factors(columns.Layer):
    """The same, with numbers that are given."""

    def __init__(self, factors: list[float]) -> None:
        self.factors = columns.statistic(factors)

    def forward(self, x: Any) -> Any:
        return x * self.factors


class Scaled(rows.Module):
    """Two layers of one shape, and a scale."""

    def __init__(self) -> None:
        self.query, self.norm, self.value = rows.Linear(4, 4), rows.LayerNorm(4), rows.Linear(4, 4)
        self.scale = Scale()

    def forward(self, x: Any) -> Any:
        return self.scale(self.value(self.norm(F.tanh(self.query(x)))))


class Crossed(columns.Layer):
    """The same, with both layers under each other's names."""

    def __init__(self, factors: list[float]) -> None:
        self.query, self.norm, self.value = columns.Dense(4, 4), columns.LayerNormalization(4), columns.Dense(4, 4)
        self.scale = Factors(factors)

    def forward(self, x: Any) -> Any:
        return self.scale(self.query(self.norm(F.tanh(self.value(x)))))


def test_a_wrong_constant_is_told_where_the_dataflow_then_overrules_names() -> None:
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    assert padiff.diff(Scaled(), Crossed([1.0, 2.0, 3.0, 4.0]), x).aligned
    report = padiff.diff(Scaled(), Crossed([1.0, 2.5, 3.0, 4.0]), x)
    (source,) = report.sources
    assert (source.what.name, source.cause.name) == ("factors", "constant"), report


def test_homes_of_buffers_are_sought_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of one shape fit each other: they were sought anew for each two, among all parameters."""
    sought: list[str] = []
    home = _constants._home

    def counting(path: str, linked: Any) -> Any:
        sought.append(path)
        return home(path, linked)

    def model(base: Any, linear: Any, tensor: Any, name: str) -> Any:
        class Scaled(base):
            def __init__(self) -> None:
                self.linear = linear(8, 8)
                values = np.random.standard_normal(8).astype(np.float32)
                setattr(self, name, tensor(values, role="buffer"))

            def forward(self, x: Any) -> Any:
                return self.linear(x) * getattr(self, name)

        class Model(base):
            def __init__(self) -> None:
                for i in range(8):
                    setattr(self, f"{name}{i}", Scaled())

            def forward(self, x: Any) -> Any:
                for i in range(8):
                    x = getattr(self, f"{name}{i}")(x)
                return x

        return Model()

    np.random.seed(0)
    monkeypatch.setattr(_constants, "_home", counting)
    models = (
        model(rows.Module, rows.Linear, rows.Tensor, "scale"),
        model(columns.Layer, columns.Dense, columns.Tensor, "gain"),
    )
    assert padiff.diff(*models, TOKENS).aligned
    assert 16 <= len(sought) <= 64, len(sought)


def growing(base: Any, linear: Any, buffer: Any, shape: tuple[int, ...], factor: float = 1.0) -> Any:
    """Return a model that makes its table of positions anew where inputs are of another length."""

    class Net(base):
        def __init__(self) -> None:
            self.layer, self.table = linear(4, 4), buffer(np.zeros((1, 1, 4)))

        def forward(self, x: Any) -> Any:
            if self.table.shape[-2] != x.shape[1]:
                self.table = buffer(np.arange(20.0).reshape(shape) * factor)
            return self.layer(x) + self.table.reshape(1, 5, 4) / 10

    return Net()


@pytest.mark.parametrize(("shape", "factor"), [((1, 5, 4), 1.0), ((5, 4), 1.0), ((5, 4), 1.1)])
def test_a_forward_may_put_a_buffer_of_another_shape_in_the_place_of_one(shape: tuple[int, ...], factor: float) -> None:
    """A diff raised a ValueError, of a copy of a model too."""
    x = np.random.default_rng(0).standard_normal((2, 5, 4)).astype(np.float32)
    ours = growing(rows.Module, rows.Linear, rows.buffer, (1, 5, 4))
    report = padiff.diff(ours, growing(columns.Layer, columns.Dense, columns.statistic, shape, factor), x)
    assert report.aligned == (factor == 1.0), str(report)
    assert len(report.sources) == (not report.aligned), str(report)


class Plain(rows.Module):
    """A norm that has neither scale nor shift."""

    def __init__(self) -> None:
        self.first, self.norm, self.last = rows.Linear(8, 8), rows.LayerNorm(8), rows.Linear(8, 4)
        del self.norm.weight, self.norm.bias
        ones, zeros = rows.Tensor(np.ones(8, np.float32)), rows.Tensor(np.zeros(8, np.float32))
        self.norm.forward = lambda x: F.layer_norm(x, ones, zeros, 1e-5)

    def forward(self, x: Any) -> Any:
        return self.last(self.norm(self.first(x)))


class Neutral(columns.Layer):
    """The same, with both as a framework holds them of such a norm: frozen."""

    def __init__(self, scale: float, *, trained: bool) -> None:
        self.last, self.norm, self.first = columns.Dense(8, 4), columns.LayerNormalization(8), columns.Dense(8, 8)
        for parameter, value in ((self.norm.gamma, scale), (self.norm.beta, 0.0)):
            parameter.data[...] = value
            parameter.requires_grad = trained

    def forward(self, x: Any) -> Any:
        return self.last(self.norm(self.first(x)))


@pytest.mark.parametrize(("scale", "trained"), [(1.0, False), (1.5, False), (1.0, True)])
def test_a_norm_without_scale_may_hold_ones_in_the_candidate(scale: float, trained: bool) -> None:
    """MindSpore's norms with affine=False hold frozen ones and zeros: right ports were two sources."""
    report = padiff.diff(Plain(), Neutral(scale, trained=trained), TOKENS)
    assert report.aligned is (scale == 1 and not trained), str(report)
    assert {one.candidate.path for one in report.sources} == ({"norm"} if scale > 1 or trained else set()), str(report)
    if not trained:
        assert [one.phase.value for one in report.sources] == ["forward"] * (scale > 1), str(report)


def remembering(base: Any, linear: Any, buffer: Any, times: int = 1, factor: float = 1.0) -> Any:
    """Return a model that puts what it gives behind what it remembers, once or several times."""

    class Net(base):
        def __init__(self) -> None:
            self.layer, self.memory = linear(4, 4), buffer(np.zeros((2, 4)))

        def forward(self, x: Any) -> Any:
            y = self.layer(x)
            self.memory = buffer(np.concatenate([self.memory.data, *[y.data * factor] * times]))
            return y

    return Net()


@pytest.mark.parametrize("wrong", [{}, {"times": 2}, {"factor": 1.1}])
def test_what_a_model_remembers_may_grow(wrong: dict[str, Any], tmp_path: Path) -> None:
    """It raised a ValueError, between recorded runs as well."""
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    theirs = remembering(columns.Layer, columns.Dense, columns.statistic, **wrong)
    report = padiff.diff(remembering(rows.Module, rows.Linear, rows.buffer), theirs, x)
    assert report.aligned == (not wrong), str(report)
    assert [str(source.what) for source in report.sources] == ["buffer memory after the run"] * bool(wrong), str(report)
    sizes = "after the run the reference's holds 20 numbers, the candidate's 32"
    assert (sizes in str(report)) == ("times" in wrong), str(report)
    assert "not finite" not in str(report), str(report)
    ours = remembering(rows.Module, rows.Linear, rows.buffer)
    theirs = remembering(columns.Layer, columns.Dense, columns.statistic, **wrong)
    optimizers = rows.SGD(ours.parameters(), 0.1), columns.Descent(theirs.parameters(), 0.1)
    steps = padiff.diff(ours, theirs, x, optimizers=optimizers, steps=3)
    assert steps.aligned == (not wrong), str(steps)
    assert "memory" in next(note.text for note in steps.notes if note.kind == "begun_anew"), str(steps)
    models = [remembering(rows.Module, rows.Linear, rows.buffer, **how) for how in ({}, wrong)]
    models[1].layer = copy.deepcopy(models[0].layer)
    for number, model in enumerate(models):
        with padiff.record(model, tmp_path / str(number)) as recorder:
            model(rows.Tensor(x)).mean().backward()
            recorder.step()
    runs = padiff.compare(tmp_path / "0", tmp_path / "1")
    assert runs.aligned == (not wrong), str(runs)
