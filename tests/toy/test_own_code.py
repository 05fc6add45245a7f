"""Name what differs in a module's own code: the operation, its line, and how both sides call it."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

X = (np.random.default_rng(0).standard_normal((5, 4), dtype=np.float32) * 1e-2,)


class Weighed(rows.Module):
    """Blocks whose own code scales, weighs and bends what a layer gives."""

    def __init__(self) -> None:
        self.blocks = rows.ModuleList(*(WeighedBlock() for _ in range(3)))

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return x


class WeighedBlock(rows.Module):
    def __init__(self) -> None:
        self.into, self.out = rows.Linear(4, 4), rows.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return x + self.out(F.softmax(self.into(x) * 0.5) * F.tanh(x))


class WeighedPort(columns.Layer):
    def __init__(self, faults: tuple[str, ...]) -> None:
        self.blocks = columns.Layers(*map(WeighedBlockPort, faults))

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return x


class WeighedBlockPort(columns.Layer):
    def __init__(self, fault: str) -> None:
        self.last, self.first, self.fault = columns.Dense(4, 4), columns.Dense(4, 4), fault

    def forward(self, x: Any) -> Any:
        bent = F.sigmoid(x) if self.fault == "bend first" else None
        scores = self.first(x) * (0.7 if "otherwise" in self.fault else 0.6 if "scale" in self.fault else 0.5)
        weights = F.softmax(scores)
        if "more" in self.fault:
            weights = weights * 1.1
        if bent is None:
            bent = F.sigmoid(x) if self.fault.endswith("bend") else F.tanh(x)
        y = self.last(weights * bent)
        return x + (y * 1.1 if "end" in self.fault.split() else y)


@pytest.mark.parametrize(
    ("faults", "cause", "said"),
    [
        (("", "scale", ""), "called as mul(_, 0.5) in the reference, as mul(_, 0.6) in the candidate", "1 source ("),
        (
            ("scale",) * 3,
            "called as mul(_, 0.5) in the reference, as mul(_, 0.6) in the candidate",
            "1 source in 3 places",
        ),
        (("", "", "bend"), "kind: tanh (tanh) in the reference, sigmoid (sigmoid) in the candidate", "1 source ("),
        (
            ("bend first", "", ""),
            "kind: tanh (tanh) in the reference, sigmoid (sigmoid) in the candidate",
            "1 source (",
        ),
        (
            ("scale bend", "", ""),
            "called as mul(_, 0.5) in the reference, as mul(_, 0.6) in the candidate; "
            "and kind: tanh (tanh) in the reference, sigmoid (sigmoid) in the candidate",
            "1 source (",
        ),
        (
            ("scale more", "", ""),
            "called as mul(_, 0.5) in the reference, as mul(_, 0.6) in the candidate; "
            "and mul(_, 1.1) in the candidate only",
            "1 source (",
        ),
        (
            ("scale", "scale otherwise", "scale"),
            {f"called as mul(_, 0.5) in the reference, as mul(_, {n}) in the candidate" for n in (0.6, 0.7)},
            "3 sources (",
        ),
    ],
    ids=[
        "one-block",
        "every-block",
        "another-function",
        "before-the-calls-around",
        "two-faults-in-one-value",
        "and-one-more-operation",
        "each-block-its-own",
    ],
)
def test_the_operation_that_differs_in_own_code_is_the_cause(faults: Any, cause: Any, said: str) -> None:
    """It was named where operations were asked for, and with its line where the code ends that is wrong."""
    report = padiff.diff(Weighed(), WeighedPort(faults), X)
    assert str(report).startswith(f"not aligned: {said}"), str(report)
    causes = cause if isinstance(cause, set) else {cause}
    assert {source.cause and str(source.cause) for source in report.sources} == causes, str(report)
    if isinstance(cause, str) and "mul" in cause:
        code = WeighedBlockPort.forward.__code__
        assert {one.candidate.location for one in report.sources} == {f"{__file__}:{code.co_firstlineno + 2}"}


def test_a_function_that_is_another_one_though_called_alike_is_the_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    """On new hardware, or in another framework: a cause was missing, or two spellings of one argument were it."""
    tanh = F.tanh

    def off(x: Any) -> Any:
        return tanh(x) * 1.01 if isinstance(x, columns.Tensor) else tanh(x)

    monkeypatch.setattr(F, "tanh", off)
    report = padiff.diff(Weighed(), WeighedPort(("", "", "")), X)
    assert str(report).startswith("not aligned: 1 source in 3 places"), str(report)
    said = "tanh gives something else of the same values, called alike: its kernel, or a default that it has"
    assert {str(source.cause) for source in report.sources} == {said}


@pytest.mark.parametrize("faults", [("", "scale", ""), ("scale",) * 3], ids=["one-block", "every-block"])
def test_the_operation_that_differs_is_one_source_in_all_steps(faults: tuple[str, ...]) -> None:
    """It was one for each step."""
    reference, candidate = Weighed(), WeighedPort(faults)
    optimizers = rows.SGD(reference.parameters(), 0.1), columns.Descent(candidate.parameters(), 0.1)
    report = padiff.diff(reference, candidate, X, optimizers=optimizers, steps=3)
    assert str(report).startswith(f"not aligned: 1 source in {3 * sum(map(bool, faults))} places"), str(report)


def test_an_operation_that_differs_explains_the_code_that_it_is_in() -> None:
    """Another call of that operation, by the right code around, was taken for it; and two lines for one."""
    report = padiff.diff(Weighed(), WeighedPort(("scale end", "", "")), X)
    wrong = {one.between: one.cause and one.cause.name for one in report.sources}
    assert wrong == {("first", "last"): "arguments", ("last", "end"): "code_alone"}, str(report)
    exchanged = padiff.diff(Scaled(), ScaledPort(), X, operations=True)
    assert [one.candidate.path for one in exchanged.sources] == ["mul", "mul"], str(exchanged)


class Scaled(rows.Module):
    """Two numbers in two lines."""

    def __init__(self) -> None:
        self.linear = rows.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        y = F.tanh(self.linear(x) * 0.5)
        return y * 0.25


class ScaledPort(columns.Layer):
    """The same, exchanged."""

    def __init__(self) -> None:
        self.layer = columns.Dense(4, 4)

    def forward(self, x: Any) -> Any:
        y = F.tanh(self.layer(x) * 0.25)
        return y * 0.5


class Twice(rows.Module):
    """A value that is used twice: given to a layer, and bent for the next one."""

    def __init__(self) -> None:
        self.one, self.two = rows.Linear(4, 4), rows.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        y = x * 0.5
        first = self.one(y + 1.0)
        return self.two(F.tanh(y) * 2.0) + first


class TwicePort(columns.Layer):
    def __init__(self, scale: float, factor: float) -> None:
        self.two, self.one = columns.Dense(4, 4), columns.Dense(4, 4)
        self.scale, self.factor = scale, factor

    def forward(self, x: Any) -> Any:
        y = x * self.scale
        first = self.one(y + 1.0)
        return self.two(F.tanh(y) * self.factor) + first


@pytest.mark.parametrize(
    ("scale", "factor", "said", "causes"),
    [
        (0.6, 2.0, "1 source in 2 places", ["0.6", "0.6"]),
        (0.6, 3.0, "2 sources (", ["0.6", "3.0"]),
        (0.5, 3.0, "1 source (", ["3.0"]),
    ],
    ids=["what-is-used-twice", "two-faults", "the-later-one"],
)
def test_what_is_used_again_is_wrong_for_the_reason_of_its_first_use(
    scale: float, factor: float, said: str, causes: list[str]
) -> None:
    """The later use had no cause, or none of two faults had one; and one fault was a source for each use."""
    report = padiff.diff(Twice(), TwicePort(scale, factor), X)
    assert str(report).startswith(f"not aligned: {said}"), str(report)
    assert [str(one.cause).split(", ")[-1].partition(")")[0] for one in report.sources] == causes, str(report)


class Looped(rows.Module):
    def __init__(self, rounds: int, factor: float = 0.1) -> None:
        self.layer, self.rounds, self.factor = rows.Linear(4, 4), rounds, factor

    def forward(self, x: Any) -> Any:
        x = self.layer(x)
        for _ in range(self.rounds):
            x = x + F.tanh(x) * self.factor
        return x


@pytest.mark.parametrize("rounds", [3, 400], ids=["few", "many"])
def test_a_long_loop_is_not_looked_into(rounds: int) -> None:
    """Each round would be judged by itself: seconds for what takes none."""
    (source,) = padiff.diff(Looped(rounds), Looped(rounds, 0.11), X).sources
    assert (source.cause is not None) is (rounds == 3), source


class Norm(rows.Module):
    """A norm by hand, which calls no other module."""

    def __init__(self) -> None:
        self.gain = rows.parameter(6, scale=0.3, at=1.0)

    def forward(self, x: Any) -> Any:
        return x / ((x * x).mean(-1, keepdims=True) + 1e-2) * self.gain


class NormPort(columns.Layer):
    """The same in another hand."""

    def __init__(self, eps: float) -> None:
        self.weight, self.eps = columns.weight(6), eps

    def forward(self, x: Any) -> Any:
        return self.weight * x / ((x * x).mean(-1, keepdims=True) + self.eps)


class Mixed(rows.Module):
    """Attention by hand behind a norm and a gate: functions, operators, axes exchanged, a mask, a loop."""

    def __init__(self) -> None:
        self.q, self.k, self.out, self.norm = rows.Linear(6, 6), rows.Linear(6, 6), rows.Linear(6, 6), Norm()

    def forward(self, x: Any) -> Any:
        x = self.norm(x)
        b, t, _ = x.shape
        q, k = self.q(x).reshape(b, t, 2, 3).transpose(0, 2, 1, 3), self.k(x).reshape(b, t, 2, 3).transpose(0, 2, 1, 3)
        scores = (q @ k.transpose(0, 1, 3, 2)) * 0.5
        scores = F.softmax(scores + type(x)(np.triu(np.full((t, t), -np.inf, np.float32), 1)))
        y = (scores @ k).transpose(0, 2, 1, 3).reshape(b, t, 6)
        centred = y - y.mean(1, keepdims=True)
        for _ in range(4):
            y = centred + F.tanh(y) * 0.25
        return x + self.out(F.relu(y)) * 0.5


class MixedPort(columns.Layer):
    """The same in another hand: heads behind steps, a mask that is added, numbers that divide."""

    def __init__(self, fault: str) -> None:
        self.last, self.keys, self.queries = columns.Dense(6, 6), columns.Dense(6, 6), columns.Dense(6, 6)
        self.scaled, self.fault = NormPort(1e-3 if fault == "eps" else 1e-2), fault

    def forward(self, x: Any) -> Any:
        x = self.scaled(x)
        b, t, _ = x.shape
        fault = self.fault
        k, q = self.keys(x).reshape(b, t, 2, 3), self.queries(x).reshape(b, t, 2, 3)
        if fault == "exchanged":
            q, k = k, q
        at = k.transpose(0, 2, 3, 1)
        scores = q.transpose(0, 2, 1, 3) @ at
        scores = scores if fault == "no scale" else scores / (4.0 if fault == "scale" else 2.0)
        mask = 1.0 - np.tril(np.ones((t, t), np.float32), 1 if fault == "mask" else 0)
        scores = F.softmax(scores + type(x)(mask) * -1e9, axis=-2 if fault == "axis" else -1)
        values = k.transpose(0, 2, 1, 3)
        y = scores @ (F.relu(values) if fault == "extra" else values)
        y = (y if fault == "merge" else y.transpose(0, 2, 1, 3)).reshape(b, t, 6)
        mean = y.mean(2 if fault == "mean" else 1, keepdims=True)
        centred = mean - y if fault == "sign" else y - mean
        for number in range(4):
            y = F.tanh(y) * (0.3 if fault == "loop" or (fault == "third" and number == 2) else 0.25) + centred
        y = self.last(y if fault == "no function" else F.relu(y)) / 2.0
        return y if fault == "no residual" else y + (y if fault == "other" else x)


_BATCH = (np.random.default_rng(3).standard_normal((4, 5, 6), dtype=np.float32),)


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("scale", "called as mul(_, 0.5) in the reference, as div(_, 4.0) in the candidate"),
        ("no scale", "mul(_, 0.5) in the reference only"),
        ("axis", "called as softmax(_) in the reference, as softmax(_, axis=-2) in the candidate"),
        ("extra", "relu(_) in the candidate only"),
        ("merge", "called as reshape(a[4, 5, 2, 3], 4, 5, 6) in the reference, as reshape(a[4, 2, 5, 3], 4, 5, 6)"),
        ("mean", "called as mean(_, 1, keepdims=True) in the reference, as mean(_, 2, keepdims=True)"),
        ("sign", "called as sub(a, b) in the reference, as sub(b, a) in the candidate"),
        ("loop", "called as mul(_, 0.25) in the reference, as mul(_, 0.3) in the candidate"),
        ("third", "called as mul(_, 0.25) in the reference, as mul(_, 0.3) in the candidate"),
        ("no function", "relu(_) in the reference only"),
        ("no residual", "add(_, _) in the reference only"),
        ("eps", "called as add(_, 0.01) in the reference, as add(_, 0.001) in the candidate"),
        ("other", "add takes the output of norm in the reference, div of the output of last in the candidate"),
        ("mask", "a tensor made of no input: [0, -inf, -inf, -inf, ...] in the reference, [0, 0, 1, 1, ...] in"),
        ("exchanged", "called as matmul(a[4, 2, 5, 3], b[4, 2, 3, 5]) in the reference, as matmul(b[4, 2, 5, 3], a[4"),
    ],
    ids=str,
)
def test_what_is_wrong_in_own_code_is_found_by_its_values(fault: str, told: str) -> None:
    """Other names, another order of axes, and what one side alone calls had no cause."""
    assert padiff.diff(Mixed(), MixedPort(""), _BATCH).aligned
    report = padiff.diff(Mixed(), MixedPort(fault), _BATCH)
    (source,) = report.sources
    assert str(source.cause).startswith(told), str(report)
    rounds = {
        "loop": "mul: each of the 4 times that the candidate's line runs",
        "third": "mul: in no. 3 of the 4 times that the",
    }
    assert [one for one in source.evidence if one.kind == "rounds"] == [] or fault in rounds, str(report)
    assert rounds.get(fault, "") in str(report)


def test_a_layer_without_parameters_in_place_of_a_function_is_told_with_its_settings() -> None:
    """The cause was `computed as gelu(_) in the reference, as act(_) in the candidate`."""

    class Functional(rows.Module):
        def __init__(self) -> None:
            self.one, self.two = rows.Linear(6, 5), rows.Linear(5, 3)

        def forward(self, x: Any) -> Any:
            return self.two(F.gelu(self.one(x)) * 0.5)

    class Layered(columns.Layer):
        def __init__(self, rough: bool) -> None:
            self.one, self.two, self.act = columns.Dense(6, 5), columns.Dense(5, 3), columns.Gelu(rough)

        def forward(self, x: Any) -> Any:
            return self.two(self.act(self.one(x)) * 0.5)

    assert padiff.diff(Functional(), Layered(False), _BATCH).aligned
    (source,) = padiff.diff(Functional(), Layered(True), _BATCH).sources
    assert str(source.cause) == (
        "computed as gelu(_) in the reference, as act(_, approximate='tanh' (rough=True)) in the candidate"
    )


def sloped(base: Any, linear: Any, slopes: tuple[float, float], *, less: bool) -> Any:
    """Return a model that scales each of two heads by a number of its own."""

    class Model(base):
        def __init__(self) -> None:
            self.into, self.out = linear(6, 6), linear(6, 6)

        def forward(self, x: Any) -> Any:
            y = self.into(x)
            more = F.tanh(y).reshape(4, 5, 2, 3) * type(x)(np.array(slopes, np.float32).reshape(2, 1))
            return self.out(y + more.reshape(4, 5, 6) if less else more.reshape(4, 5, 6) + y)

    return Model()


def test_two_numbers_are_a_mask_only_where_one_is_zero() -> None:
    """Any two were taken for a mask's: two other slopes were the same, and what takes them the cause."""
    ours = sloped(rows.Module, rows.Linear, (0.5, 0.25), less=False)
    (source,) = padiff.diff(ours, sloped(columns.Layer, columns.Dense, (0.25, 0.125), less=True), _BATCH).sources
    assert str(source.cause) == (
        "a tensor made of no input: [0.5, 0.25] in the reference, [0.25, 0.125] in the candidate"
    ), str(source)


class Image(rows.Module):
    """Two convolutions, and a gate of each channel between them."""

    def __init__(self) -> None:
        self.one, self.two = rows.Conv2d(3, 4, 3), rows.Conv2d(4, 2, 3)

    def forward(self, x: Any) -> Any:
        y = F.tanh(self.one(x))
        return self.two(y * F.sigmoid(y.mean((2, 3), keepdims=True)) - y * 0.25)


class ImagePort(columns.Layer):
    """The same with the channels last."""

    def __init__(self, fault: str) -> None:
        self.last, self.first, self.fault = columns.Conv(4, 2, 3), columns.Conv(3, 4, 3), fault

    def forward(self, x: Any) -> Any:
        y = F.tanh(self.first(x.transpose(0, 2, 3, 1)))
        gate = F.sigmoid(y.mean((1, 3) if self.fault == "axes" else (1, 2), keepdims=True))
        less = y * (0.5 if self.fault == "scale" else 0.25)
        y = less - gate * y if self.fault == "sign" else gate * y if self.fault == "less" else gate * y - less
        return self.last(y).transpose(0, 3, 1, 2)


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (
            "axes",
            "called as mean(a[2, 4, 6, 5], (2, 3), keepdims=True) in the reference, as mean(a[2, 6, 5, 4], (1, 3)",
        ),
        ("scale", "called as mul(a[2, 4, 6, 5], 0.25) in the reference, as mul(a[2, 6, 5, 4], 0.5) in the candidate"),
        ("sign", "called as sub(a[2, 4, 6, 5], b[2, 4, 6, 5]) in the reference, as sub(b[2, 6, 5, 4], a[2, 6, 5, 4])"),
        ("less", "sub(_, _) in the reference only"),
    ],
    ids=str,
)
def test_what_is_wrong_in_another_order_of_axes_is_found(fault: str, told: str) -> None:
    batch = (np.random.default_rng(4).standard_normal((2, 3, 8, 7), dtype=np.float32),)
    assert padiff.diff(Image(), ImagePort(""), batch).aligned
    report = padiff.diff(Image(), ImagePort(fault), batch)
    (source,) = report.sources
    assert str(source.cause).startswith(told), str(report)


class Gated(rows.Module):
    """A layer whose code lets gradients through in part: its gate gets none, nor what a softmax is shifted by."""

    def __init__(self) -> None:
        self.blocks = rows.ModuleList(*(GatedBlock() for _ in range(2)))

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = x + block(x)
        return x


class GatedBlock(rows.Module):
    def __init__(self) -> None:
        self.into, self.out = rows.Linear(4, 4), rows.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        y = self.into(x)
        gate = F.tanh(F.detach(y) * 0.5)
        powers = (y - F.detach(y.mean(-1, keepdims=True))).exp()
        return self.out(gate * y + powers / powers.sum(-1, keepdims=True))


class GatedPort(columns.Layer):
    def __init__(self, *faults: str) -> None:
        self.blocks = columns.Layers(*map(GatedBlockPort, faults))

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = x + block(x)
        return x


class GatedBlockPort(columns.Layer):
    def __init__(self, fault: str) -> None:
        self.last, self.first, self.fault = columns.Dense(4, 4), columns.Dense(4, 4), fault

    def forward(self, x: Any) -> Any:
        y = self.first(x)
        half = y * 0.5
        gate = F.tanh(half if self.fault == "gate" else F.detach(half))
        powers = (y - y.mean(-1, keepdims=True)).exp()
        weights = powers / powers.sum(-1, keepdims=True)
        gated = gate * (F.detach(y) if self.fault == "values" else y)
        weights = F.detach(weights) if self.fault == "weights" else weights
        made = self.last(gated + weights)
        return F.detach(made) if self.fault == "all" else made


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("", None),
        ("gate", "no gradient goes through detach(_) in the reference only"),
        ("values", "no gradient goes through to what mul(_, _) is given in the candidate only"),
        ("weights", "no gradient goes through detach(_) in the candidate only"),
        ("all", "no gradient goes through detach(_) in the candidate only"),
    ],
)
@pytest.mark.parametrize("everywhere", [False, True], ids=["one-block", "every-block"])
def test_what_lets_no_gradient_through_on_one_side_is_the_cause(fault: str, told: str | None, everywhere: bool) -> None:
    """Where both sides cut alike, if elsewhere on the way, or where it changes no gradient, that is none."""
    report = padiff.diff(Gated(), GatedPort(fault if everywhere else "", fault), X)
    assert report.aligned is (told is None), str(report)
    assert {str(source.cause) for source in report.sources} <= {told}, str(report)
    assert report.aligned or str(report).startswith("not aligned: 1 source"), str(report)


def spread(base: Any, linear: Any, *, ported: bool, cut: bool = False) -> Any:
    """Return a model that takes squares of differences, or what these come to once they are multiplied out."""

    class Spread(base):
        def __init__(self) -> None:
            self.first, self.last = linear(4, 4), linear(4, 4)

        def forward(self, x: Any) -> Any:
            y = self.first(x)
            mean = y.mean(-1, keepdims=True)
            if not ported:
                return self.last(y * y - y * mean * 2.0 + mean * mean + F.tanh(y))
            off = y - mean
            other = F.detach(off) if cut else off
            return self.last(off * other + F.tanh(y))

    return Spread()


def test_a_cut_where_both_sides_compute_otherwise_is_placed_at_its_line() -> None:
    """No value of the reference's shows that it is the cause: the module was named, at its first line."""
    ours = spread(rows.Module, rows.Linear, ported=False)
    assert padiff.diff(ours, spread(columns.Layer, columns.Dense, ported=True), X).aligned
    model = spread(columns.Layer, columns.Dense, ported=True, cut=True)
    (source,) = padiff.diff(ours, model, X).sources
    line = type(model).forward.__code__.co_firstlineno + 6
    assert source.candidate.location == f"{__file__}:{line}", str(source)
    assert "no gradient goes through detach(_) in the candidate only" in " ".join(source.evidence), str(source)


def shifting(base: Any, linear: Any, *, ported: bool, cut: bool = False) -> Any:
    """Return a model that mixes each feature with the one before it, the first one with zeros."""

    class Shifting(base):
        def __init__(self) -> None:
            self.first, self.last = linear(4, 4), linear(4, 4)

        def forward(self, x: Any) -> Any:
            y = self.first(x)
            if ported:
                zeros = F.detach(y[:, :1]) * 0.0
                before = F.concat([zeros, y[:, :-1]], 1)
                before = F.detach(before) if cut else before
            else:
                before = y @ rows.Tensor(np.eye(4, k=1, dtype=np.float32))
            return self.last(F.tanh(y) * F.sigmoid(before))

    return Shifting()


def test_zeros_that_get_no_gradient_are_no_cut_beside_what_is_cut_off() -> None:
    """They come first, and all else is cut off with them where the reference makes both in one."""
    ours = shifting(rows.Module, rows.Linear, ported=False)
    assert padiff.diff(ours, shifting(columns.Layer, columns.Dense, ported=True), X).aligned
    model = shifting(columns.Layer, columns.Dense, ported=True, cut=True)
    (source,) = padiff.diff(ours, model, X).sources
    line = type(model).forward.__code__.co_firstlineno + 5
    assert source.candidate.location == f"{__file__}:{line}", str(source)
    assert str(source.cause) == "no gradient goes through detach(_) in the candidate only", str(source)


class ScoredInline(rows.Module):
    """A layer, and scores by a vector of the model's own."""

    def __init__(self) -> None:
        self.first, self.vector = rows.Linear(4, 4), rows.parameter(4, scale=0.5)

    def forward(self, x: Any) -> Any:
        x = self.first(x)
        return x * F.sigmoid((x * self.vector).sum(-1, keepdims=True) * 0.5)


class Scores(columns.Layer):
    def __init__(self, scale: float) -> None:
        self.vector, self.scale = columns.weight(4, scale=0.5), scale

    def forward(self, x: Any) -> Any:
        return F.sigmoid((x * self.vector).sum(-1, keepdims=True) * self.scale)


class ScoredByAModule(columns.Layer):
    """The same, by a module that calls no others."""

    def __init__(self, scale: float) -> None:
        self.first, self.scores = columns.Dense(4, 4), Scores(scale)

    def forward(self, x: Any) -> Any:
        x = self.first(x)
        return x * self.scores(x)


@pytest.mark.parametrize(
    ("scale", "told"), [(0.5, []), (0.6, ["called as mul(_, 0.5) in the reference, as mul(_, 0.6)"])]
)
def test_what_is_wrong_in_a_module_that_the_other_side_has_as_code_is_found(scale: float, told: list[str]) -> None:
    """Its code was not looked into where it calls no other module: no cause was told."""
    report = padiff.diff(ScoredInline(), ScoredByAModule(scale), X)
    assert [str(one.cause).removesuffix(" in the candidate") for one in report.sources] == told, str(report)


def shuffled(base: Any, linear: Any, axes: tuple[int, ...]) -> Any:
    """Return a model that puts what a layer gives into another order."""

    class Model(base):
        def __init__(self) -> None:
            self.one, self.two = linear(4, 80), linear(60, 3)

        def forward(self, x: Any) -> Any:
            return self.two(F.tanh(self.one(x).reshape(2, 3, 4, 5, 4)).transpose(*axes).reshape(2, 4, 60))

    return Model()


def test_axes_that_are_put_in_another_order_are_told_where_that_is() -> None:
    """There was no cause, or the reshape behind, called alike on both sides."""
    batch = (np.random.default_rng(4).standard_normal((2, 3, 4), dtype=np.float32),)
    right = shuffled(rows.Module, rows.Linear, (0, 2, 1, 3, 4))
    assert padiff.diff(right, shuffled(columns.Layer, columns.Dense, (0, 2, 1, 3, 4)), batch).aligned
    (source,) = padiff.diff(right, shuffled(columns.Layer, columns.Dense, (0, 4, 1, 3, 2)), batch).sources
    said = "called as transpose(_, 0, 2, 1, 3, 4) in the reference, as transpose(_, 0, 4, 1, 3, 2) in the candidate"
    assert str(source.cause) == said


class Horner(rows.Module):
    """A polynomial of what one layer gives, for another."""

    def __init__(self) -> None:
        self.one, self.two = rows.Linear(4, 4), rows.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        x = self.one(x)
        y = x * 0.1
        for factor in (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8):
            y = (y + factor) * x
        return self.two(y)


class Powers(columns.Layer):
    """The same power by power, of which one is wrong: no operation makes what the reference's do."""

    def __init__(self) -> None:
        self.one, self.two = columns.Dense(4, 4), columns.Dense(4, 4)

    def powers(self, x: Any) -> Any:
        y, power = x * 0.8, x * x
        for factor in (0.7, 0.6, 0.5, 0.4, 0.3, 0.25, 0.1):
            y, power = y + power * factor, power * x
        return y

    def forward(self, x: Any) -> Any:
        return self.two(self.powers(self.one(x)))


def test_code_of_which_no_operation_is_the_cause_is_located_where_it_begins_to_differ() -> None:
    """It was located where a layer is called with what it makes."""
    (source,) = padiff.diff(Horner(), Powers(), np.random.default_rng(0).standard_normal((3, 4), np.float32)).sources
    assert source.cause is None, str(source.cause)
    lines, first = inspect.getsourcelines(Powers.powers)
    assert int(source.candidate.location.rpartition(":")[2]) in range(first, first + len(lines))
