"""Make tables in a fixed type, whatever the model is lifted to: what such code rounds shows in no replay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, functional, rows
from padiff.testing.toy._tape import made

X = np.random.default_rng(0).standard_normal((2, 4)).astype(np.float32)


class Steps(rows.Module):
    """Add what a layer makes of a table, whose exponents a float32 holds."""

    def __init__(self) -> None:
        self.head, self.table = rows.Linear(4, 4), rows.Linear(8, 4)

    def forward(self, x: Any) -> Any:
        rates = (rows.Tensor(np.arange(8, dtype=np.float32)[None]) * np.float32(-0.001)).exp()
        return self.head(x) + self.table(((rates - np.float32(1)) * np.float32(700)).exp())


class Stepped(columns.Layer):
    """The same with rates that a float64 held before."""

    def __init__(self, rate: float) -> None:
        self.project, self.last, self.rate = columns.Dense(8, 4), columns.Dense(4, 4), rate

    def forward(self, x: Any) -> Any:
        rates = columns.Tensor(np.exp(self.rate * np.arange(8)[None]).astype(np.float32))
        return self.last(x) + self.project(((rates - np.float32(1)) * np.float32(700)).exp())


@pytest.mark.parametrize("rate", [-0.001, -0.00101], ids=["right", "wrong"])
def test_a_table_is_as_exact_as_the_functions_that_make_it(rate: float) -> None:
    """The embedding of a diffusion model's steps: what float32 loses of the frequencies was a source."""
    report = padiff.diff(Steps(), Stepped(rate), (X,))
    assert report.aligned == (rate == -0.001), str(report)
    assert {str(source.what) for source in report.sources} <= {"input 'x' of project"}, str(report)


class Timed(rows.Module):
    """The embedding of times that the model is given: a table in float32 is multiplied by them."""

    def __init__(self) -> None:
        self.table = rows.Linear(8, 4)

    def forward(self, t: Any) -> Any:
        rates = (rows.Tensor(np.arange(8, dtype=np.float32)[None]) * np.float32(-0.001)).exp()
        return self.table((t * rates).exp())


class Exact(rows.Module):
    """The same, with a table in the model's own type, of powers that are rounded one by one."""

    def __init__(self) -> None:
        self.table = rows.Linear(8, 4)

    def forward(self, t: Any) -> Any:
        rate = np.exp(np.array(-0.001, t.dtype))
        return self.table((t * np.cumprod([[1] + [rate] * 7], axis=1, dtype=t.dtype)).exp())


class TimedElsewhere(columns.Layer):
    """The same with rates that a float64 held before; ``made`` by a function of the framework, or given to one."""

    def __init__(self, rate: float, *, made: bool) -> None:
        self.project, self.rate, self.made = columns.Dense(8, 4), rate, made

    def forward(self, t: Any) -> Any:
        rates = columns.Tensor(np.exp(self.rate * np.arange(8)[None]).astype(np.float32))
        return self.project((t * (rates * np.float32(1) if self.made else rates)).exp())


@pytest.mark.parametrize("made", [True, False])
@pytest.mark.parametrize("rate", [-0.001, -0.0010001], ids=["right", "wrong"])
@pytest.mark.parametrize("ours", [True, False], ids=["reference", "candidate"])
def test_a_table_in_float32_may_be_multiplied_by_an_input(ours: bool, rate: float, made: bool) -> None:
    """What float32 rounds of the table, a large time magnifies: that was a source, since the value has inputs."""
    reference = Timed() if ours else Exact()
    report = padiff.diff(reference, TimedElsewhere(rate, made=made), (np.array([[60.0], [50.0]], np.float32),))
    assert report.aligned == (rate == -0.001), str(report)
    assert {str(source.what) for source in report.sources} <= {"input 'x' of project"}, str(report)


class Kernel(columns.Layer):
    """What has no float64."""

    def forward(self, x: Any) -> Any:
        if x.dtype == "float64":
            msg = "no kernel for float64"
            raise TypeError(msg)
        return x * np.float32(1)


class NarrowStepped(Stepped):
    """The same, with a kernel behind it that has no float64: the module as a whole has none."""

    def __init__(self, rate: float) -> None:
        super().__init__(rate)
        self.kernel = Kernel()

    def forward(self, x: Any) -> Any:
        return self.kernel(super().forward(x))


@pytest.mark.parametrize("rate", [-0.001, -0.00101], ids=["right", "wrong"])
@pytest.mark.parametrize("ours", [True, False], ids=["candidate", "reference"])
def test_it_is_so_where_one_side_lacks_float64(ours: bool, rate: float) -> None:
    """The side that was run there made the same table in float32 still: it was taken for the truth."""
    pair = (Steps(), NarrowStepped(rate))
    report = padiff.diff(*(pair if ours else pair[::-1]), (X,))
    assert report.aligned == (rate == -0.001), str(report)
    assert {str(source.what) for source in report.sources} <= {"input 'x' of project", "input 'x' of table"}


class Scored(rows.Module):
    """Values weighed by a softmax of scores, of which nothing is masked here."""

    def __init__(self) -> None:
        self.score, self.value = rows.Linear(4, 4), rows.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return self.value(functional.softmax(self.score(x)) * 2.0)


class Masked(columns.Layer):
    """The same, with a mask that says the opposite: all is masked."""

    def __init__(self, mask: float) -> None:
        self.weigh, self.scored, self.mask = columns.Dense(4, 4), columns.Dense(4, 4), np.float32(mask)

    def forward(self, x: Any) -> Any:
        return self.weigh(functional.softmax(self.scored(x) + self.mask) * 2.0)


@pytest.mark.parametrize("mask", [0.0, -1.0, -1e9])
def test_what_a_huge_number_drowns_is_no_precision(mask: float) -> None:
    """In float64 the digits are still there: outputs 0.2 apart in float32 were told to be aligned."""
    report = padiff.diff(Scored(), Masked(mask), X)
    places = [(one.candidate.path, one.what.taker) for one in report.sources]
    assert places == [("", "weigh")] * (mask < -1), str(report)
    assert report.aligned is (mask >= -1), str(report)


class Summed(columns.Layer):
    """`Scored` with a softmax by hand, which overflows where a score is more than 88."""

    def __init__(self) -> None:
        self.weigh, self.scored = columns.Dense(4, 4), columns.Dense(4, 4)

    def forward(self, x: Any) -> Any:
        shares = self.scored(x).exp()
        return self.weigh(shares / shares.sum(-1, keepdims=True) * 2.0)


@pytest.mark.parametrize("size", [1, 1000])
@pytest.mark.filterwarnings("ignore")
def test_what_overflows_is_no_precision(size: int) -> None:
    report = padiff.diff(Scored(), Summed(), X * size)
    assert [one.what.taker for one in report.sources] == ["weigh"] * (size > 1), str(report)
    assert report.aligned is (size == 1), str(report)


def tanh_in_float32(x: Any) -> Any:
    """Stands for MindSpore's log_softmax: a kernel that computes in float32 what it is given in float64, coarsely."""
    wide = np.tanh(x.data.astype(np.float32))
    wide *= 1 + np.float32(5e-7) * np.cos(100 * wide)
    derived = (1 - wide * wide).astype(x.dtype)
    return made(x, wide.astype(x.dtype), (x, lambda g: (g.astype(np.float32) * derived).astype(g.dtype)))


class Distilled(rows.Module):
    """What two layers squash nearly alike, and how far apart that is."""

    def __init__(self) -> None:
        self.student, self.teacher = rows.Linear(4, 8), rows.Linear(4, 8)
        self.student.weight.data *= np.float32(0.7)
        self.teacher.weight.data = self.student.weight.data * np.float32(1.01)
        self.teacher.bias.data = np.array(self.student.bias.data)

    def forward(self, x: Any) -> Any:
        return (self.student(x).tanh() - self.teacher(x).tanh()) * 4.0


class DistilledInFloat32(columns.Layer):
    """The same with another kernel."""

    def __init__(self, fault: str) -> None:
        self.student, self.teacher, self.fault = columns.Dense(4, 8), columns.Dense(4, 8), fault

    def forward(self, x: Any) -> Any:
        given, known = self.student(x), self.teacher(x)
        if self.fault == "cast":
            known = type(known)(known.data.astype(np.float16).astype(known.data.dtype), sources=[(known, lambda g: g)])
        apart = functional.tanh(given) - functional.tanh(known)
        return apart * (4.001 if self.fault == "scale" else 4.0)


@pytest.mark.parametrize("fault", ["", "cast", "scale"])
def test_a_kernel_in_a_narrower_type_is_none_of_the_ports(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where two of its values cancel, what it rounds was a source, backward too, and between the free runs."""
    monkeypatch.setattr(functional, "tanh", tanh_in_float32)
    report = padiff.diff(Distilled(), DistilledInFloat32(fault), X)
    assert report.aligned is not bool(fault), str(report)
    assert {one.candidate.path for one in report.sources} == ({""} if fault else set()), str(report)


class DistilledBeside(Distilled):
    """The same, joined with what one of the layers gives."""

    def forward(self, x: Any) -> Any:
        return functional.concat([super().forward(x), self.student(x) * 1e-3])


class DistilledBesideACast(DistilledInFloat32):
    """The same with a cast in its code, which does nothing in float32."""

    def forward(self, x: Any) -> Any:
        return functional.concat([super().forward(x), functional.silu(self.student(x)) * 1e-3])


def in_float32(x: Any) -> Any:
    """Stands for a cast by name."""
    return type(x)(x.data.astype(np.float32), sources=[(x, lambda g: g.astype(x.dtype))])


@pytest.mark.parametrize("fault", ["", "scale"])
def test_such_a_kernel_is_known_where_only_casts_keep_a_call_from_float64(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MindSpore joins no float64 with float32, which code makes by name: all was a source beside its softplus."""

    def of_one_type(tensors: Any, axis: int = -1, joined: Any = functional.concat) -> Any:
        if len({tensor.dtype for tensor in tensors}) > 1:
            msg = "no kernel for these types"
            raise TypeError(msg)
        return joined(tensors, axis)

    for name, function in {"tanh": tanh_in_float32, "silu": in_float32, "concat": of_one_type}.items():
        monkeypatch.setattr(functional, name, function)
    report = padiff.diff(DistilledBeside(), DistilledBesideACast(fault), X)
    assert report.aligned is not bool(fault), str(report)
    assert {one.candidate.path for one in report.sources} == ({""} if fault else set()), str(report)
