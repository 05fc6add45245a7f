"""Hold several roles of a layer, or of many layers, in one parameter: scales with shifts, a weight with its bias."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

X = np.random.default_rng(0).standard_normal((2, 5, 4)).astype(np.float32)


def flat(norm: Any) -> Any:
    """Return a norm as it begins: all scales are one, and all shifts are zero."""
    norm.weight.data[...], norm.bias.data[...] = 1, 0
    return norm


def norm_of(features: int, start: bool) -> Any:
    norm = rows.LayerNorm(features)
    return flat(norm) if start else norm


class Block(rows.Module):
    def __init__(self, start: bool, two: bool) -> None:
        self.before, self.up, self.down = norm_of(4, start), rows.Linear(4, 6), rows.Linear(6, 4)
        self.behind = norm_of(4, start) if two else None

    def forward(self, x: Any) -> Any:
        x = x + self.down(F.tanh(self.up(self.before(x))))
        return x if self.behind is None else F.tanh(self.behind(x))


class Model(rows.Module):
    """Blocks of a norm each, or of two, and a last norm."""

    def __init__(self, start: bool = False, two: bool = False) -> None:
        self.blocks = rows.ModuleList(Block(start, two), Block(start, two), Block(start, two))
        self.last, self.head = norm_of(4, start), rows.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return self.head(self.last(x))


SHAPES = {"rows": (2, 4), "by hand": (2, 4), "shift first": (2, 4), "line": (8,), "columns": (4, 2)}


class Norm(columns.Layer):
    """A norm with its scale and its shift in one parameter."""

    def __init__(self, how: str) -> None:
        self.both, self.how = columns.weight(*SHAPES[how]), how

    def parts(self) -> tuple[Any, Any]:
        both = self.both
        if self.how == "line":
            return both[:4], both[4:]
        if self.how == "columns":
            return both[:, 0], both[:, 1]
        return (both[1], both[0]) if self.how == "shift first" else (both[0], both[1])

    def forward(self, x: Any) -> Any:
        if self.how == "by hand":
            one, zero = columns.Tensor(np.ones(4, np.float32)), columns.Tensor(np.zeros(4, np.float32))
            return F.layer_norm(x, one, zero, 1e-5) * self.both[0] + self.both[1]
        return F.layer_norm(x, *self.parts(), 1e-5)


class PortBlock(columns.Layer):
    def __init__(self, how: str, fault: str) -> None:
        self.fc2, self.fc1, self.norm = columns.Dense(6, 4), columns.Dense(4, 6), Norm(how)
        self.fault = fault

    def forward(self, x: Any) -> Any:
        y = self.norm(x)
        if self.fault == "swap":
            y = F.layer_norm(x, *self.norm.parts()[::-1], 1e-5)
        return x + self.fc2(F.tanh(self.fc1(y)))


class Port(columns.Layer):
    def __init__(self, how: str, fault: str = "") -> None:
        self.out, self.norm = columns.Dense(4, 3), Norm(how)
        self.layers = columns.Layers(*(PortBlock(how, fault if place == 1 else "") for place in range(3)))

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return self.out(self.norm(x))


@pytest.mark.parametrize("turned", [False, True], ids=["apart", "in one"])
@pytest.mark.parametrize("start", [False, True], ids=["trained", "new"])
@pytest.mark.parametrize("how", SHAPES)
def test_one_parameter_holds_the_scale_and_the_shift_of_a_norm(how: str, start: bool, turned: bool) -> None:
    """Each was without counterpart: scales of two norms were taken for what it stacks."""
    sides = Model(start), Port(how)
    report = padiff.diff(*(sides[::-1] if turned else sides), X)
    assert report.aligned, str(report)
    assert report.transfer is not None
    assert not report.transfer.unverified, str(report)


@pytest.mark.parametrize("how", SHAPES)
def test_a_scale_that_is_used_as_shift_is_one_source(how: str) -> None:
    (source,) = padiff.diff(Model(), Port(how, "swap"), X).sources
    assert source.candidate.path == "layers.1"
    assert source.between is not None
    assert source.between[1] == "fc1"


TABLES = {
    "roles first": (2, 7, 4),
    "layers first": (7, 2, 4),
    "last axis": (2, 4, 7),
    "last norm first": (2, 7, 4),
    "by name": (2, 7, 4),
}


class Table(columns.Layer):
    """All norms in one parameter, in an order of its own, or two: one for the scales, and one for the shifts."""

    def __init__(self, how: str, fault: str = "") -> None:
        self.how, self.fault = how, fault
        if how == "two":
            self.shifts, self.scales = columns.weight(7, 4), columns.weight(7, 4)
        else:
            self.table = columns.weight(*TABLES[how])
        self.fc1, self.fc2 = (columns.Layers(*(columns.Dense(n, m) for _ in range(3))) for n, m in ((4, 6), (6, 4)))
        self.out = columns.Dense(4, 3)

    def norm(self, x: Any, number: int) -> Any:
        """Apply a norm: those of blocks have numbers 0 to 5, and the last one 6."""
        number = 0 if self.fault == "row" and number == 2 else number
        place = number
        if self.how == "last norm first":
            place = (number + 1) % 7
        if self.how == "by name" and number < 6:
            place = number // 2 + 3 * (number % 2)
        if self.how == "two":
            scale, shift = self.scales[place], self.shifts[place]
        elif self.how == "layers first":
            scale, shift = self.table[place, 0], self.table[place, 1]
        elif self.how == "last axis":
            scale, shift = self.table[0][:, place], self.table[1][:, place]
        else:
            scale, shift = self.table[0, place], self.table[1, place]
        if self.fault == "swap" and number == 2:
            scale, shift = shift, scale
        if self.fault == "gradient" and number == 2:
            shift = shift * 0.5 + F.detach(shift * 0.5)
        return F.layer_norm(x, scale, shift, 1e-5)

    def forward(self, x: Any) -> Any:
        for place in range(3):
            x = x + self.fc2[place](F.tanh(self.fc1[place](self.norm(x, 2 * place))))
            x = F.tanh(self.norm(x, 2 * place + 1))
        return self.out(self.norm(x, 6))


@pytest.mark.parametrize("turned", [False, True], ids=["apart", "in one"])
@pytest.mark.parametrize("start", [False, True], ids=["trained", "new"])
@pytest.mark.parametrize("how", [*TABLES, "two"])
def test_a_table_holds_the_norms_of_all_blocks(how: str, start: bool, turned: bool) -> None:
    """None had a counterpart. Of new norms the gradients alone tell which is which."""
    sides = Model(start, two=True), Table(how)
    report = padiff.diff(*(sides[::-1] if turned else sides), X)
    assert report.aligned, str(report)
    assert report.transfer is not None
    assert not report.transfer.unverified, str(report)


@pytest.mark.parametrize("how", ["roles first", "layers first"])
@pytest.mark.parametrize("fault", ["swap", "row"])
def test_another_row_of_a_table_is_one_source(how: str, fault: str) -> None:
    """Scales and shifts lie alike in all layers: another order in one of them is a fault, and no layout."""
    (source,) = padiff.diff(Model(two=True), Table(how, fault), X).sources
    assert source.between is not None
    assert source.between[1] == "fc1.1"


def test_a_wrong_gradient_of_a_row_is_one_source() -> None:
    (source,) = padiff.diff(Model(two=True), Table("roles first", "gradient"), X).sources
    assert source.phase.value == "backward"
    assert source.what.name == "table"


class Wide(columns.Layer):
    """A layer whose bias is a further column, or row, of its weight, or all lies in one line."""

    def __init__(self, n_in: int, n_out: int, how: str, factor: float) -> None:
        shapes = {"last": (n_out, n_in + 1), "first": (n_out, n_in + 1), "row": (n_in + 1, n_out)}
        self.all = columns.weight(*shapes.get(how, (n_out * (n_in + 1),)))
        self.n_in, self.n_out, self.how, self.factor = n_in, n_out, how, factor

    def forward(self, x: Any) -> Any:
        one = (x[..., :1] * 0.0 + 1.0) * self.factor
        if self.how == "line":
            weight = self.all[: self.n_in * self.n_out].reshape(self.n_out, self.n_in)
            return x @ weight.transpose(1, 0) + self.all[self.n_in * self.n_out :] * self.factor
        x = F.concat([one, x] if self.how == "first" else [x, one])
        return x @ (self.all if self.how == "row" else self.all.transpose(1, 0))


class Chain(rows.Module):
    def __init__(self) -> None:
        self.a, self.b, self.c = rows.Linear(4, 6), rows.Linear(6, 6), rows.Linear(6, 4)

    def forward(self, x: Any) -> Any:
        return self.c(F.tanh(self.b(F.tanh(self.a(x)))))


class WideChain(columns.Layer):
    def __init__(self, how: str, factor: float = 1.0) -> None:
        self.last, self.mid, self.first = Wide(6, 4, how, 1.0), Wide(6, 6, how, factor), Wide(4, 6, how, 1.0)

    def forward(self, x: Any) -> Any:
        return self.last(F.tanh(self.mid(F.tanh(self.first(x)))))


@pytest.mark.parametrize("turned", [False, True], ids=["apart", "in one"])
@pytest.mark.parametrize("how", ["last", "first", "row", "line"])
def test_one_parameter_holds_a_weight_and_its_bias(how: str, turned: bool) -> None:
    """Nothing was compared but the output: no layer had a counterpart."""
    sides = Chain(), WideChain(how)
    report = padiff.diff(*(sides[::-1] if turned else sides), X)
    assert report.aligned, str(report)
    (source,) = padiff.diff(Chain(), WideChain(how, 1.1), X).sources
    assert source.candidate.path == "mid"


class Normed(rows.Module):
    """Norms of two sizes, with statistics."""

    def __init__(self) -> None:
        self.a, self.b, self.c = rows.Linear(4, 6), rows.Linear(6, 4), rows.Linear(4, 2)
        self.bn1, self.bn2 = rows.BatchNorm(6), rows.BatchNorm(4)

    def forward(self, x: Any) -> Any:
        return self.c(F.tanh(self.bn2(self.b(F.tanh(self.bn1(self.a(x)))))))


class Batch(columns.Layer):
    def __init__(self, features: int, fault: str) -> None:
        self.running = columns.statistic(np.stack([np.zeros(features), np.ones(features)]))
        self.both, self.fault = columns.weight(2, features), fault

    def forward(self, x: Any) -> Any:
        scale, shift = (self.both[1], self.both[0]) if self.fault == "swap" else (self.both[0], self.both[1])
        mean, var = columns.Tensor(self.running.data[0].copy()), columns.Tensor(self.running.data[1].copy())
        momentum = 0.2 if self.fault == "momentum" else 0.1
        y = F.batch_norm(x, scale, shift, mean, var, eps=1e-5, momentum=momentum, training=self.training, axis=1)
        self.running.data[0], self.running.data[1] = mean.data, var.data
        return y


class NormedPort(columns.Layer):
    def __init__(self, fault: str = "") -> None:
        self.fc = columns.Layers(columns.Dense(4, 6), columns.Dense(6, 4), columns.Dense(4, 2))
        self.bn = columns.Layers(Batch(6, ""), Batch(4, fault))

    def forward(self, x: Any) -> Any:
        for place in range(2):
            x = F.tanh(self.bn[place](self.fc[place](x)))
        return self.fc[2](x)


@pytest.mark.parametrize("training", [True, False])
def test_statistics_may_lie_in_one_as_well(training: bool) -> None:
    x = X.reshape(10, 4)
    report = padiff.diff(Normed().train(training), NormedPort().train(training), x)
    assert report.aligned, str(report)
    report = padiff.diff(NormedPort().train(training), Normed().train(training), x)
    assert report.aligned, str(report)


@pytest.mark.parametrize("fault", ["swap", "momentum"])
def test_a_fault_of_one_such_norm_is_no_layout_of_its_own(fault: str) -> None:
    """What code of one class cuts lies alike in all of its modules, whatever their sizes."""
    report = padiff.diff(Normed(), NormedPort(fault), X.reshape(10, 4))
    assert {source.candidate.path for source in report.sources} == {"bn.1"}, str(report)
    assert len(report.sources) == 1, str(report)


class Modulated(rows.Module):
    def __init__(self) -> None:
        self.fc, self.gamma, self.beta = rows.Linear(4, 4), rows.Embedding(3, 4), rows.Embedding(3, 4)

    def forward(self, x: Any, label: Any) -> Any:
        return x + F.tanh(self.fc(x) * self.gamma(label) + self.beta(label))


class ByLabel(rows.Module):
    """Blocks that are scaled and shifted by what tables hold for a label."""

    def __init__(self) -> None:
        self.blocks, self.out = rows.ModuleList(Modulated(), Modulated()), rows.Linear(4, 2)

    def forward(self, x: Any, label: Any) -> Any:
        for block in self.blocks:
            x = block(x, label)
        return self.out(x)


class ByOneTable(columns.Layer):
    """The same with one parameter for all tables."""

    def __init__(self, labels_first: bool, fault: str = "") -> None:
        self.table = columns.weight(*((3, 2, 2, 4) if labels_first else (2, 2, 3, 4)))
        self.fc, self.out = columns.Layers(columns.Dense(4, 4), columns.Dense(4, 4)), columns.Dense(4, 2)
        self.labels_first, self.fault = labels_first, fault

    def forward(self, x: Any, label: Any) -> Any:
        for place in range(2):
            held = [self.table[:, place, n] if self.labels_first else self.table[place, n] for n in range(2)]
            scale, shift = (F.embedding(label, one) for one in held)
            if self.fault and place == 1:
                scale, shift = shift, scale
            x = x + F.tanh(self.fc[place](x) * scale + shift)
        return self.out(x)


@pytest.mark.parametrize("labels_first", [False, True])
def test_one_parameter_holds_the_tables_of_all_blocks(labels_first: bool) -> None:
    inputs = X[:, 0], np.array([2, 0])
    for sides in ((ByLabel(), ByOneTable(labels_first)), (ByOneTable(labels_first), ByLabel())):
        report = padiff.diff(*sides, inputs)
        assert report.aligned, str(report)
    (source,) = padiff.diff(ByLabel(), ByOneTable(labels_first, "swap"), inputs).sources
    assert source.between in {("fc.1", "out"), ("fc.1", "end")}, str(source)
