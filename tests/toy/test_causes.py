"""Name as a cause only what is shown to be one: a setting that differs, and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff
from padiff.report import Finding
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

X = (np.random.default_rng(0).standard_normal((5, 4), dtype=np.float32) * 1e-2,)


class Norms(rows.Module):
    """Two norms."""

    def __init__(self) -> None:
        self.one, self.two = rows.LayerNorm(4), rows.LayerNorm(4)

    def forward(self, x: Any) -> Any:
        return self.two(self.one(x))


class Port(columns.Layer):
    """The same, with norms that are given."""

    def __init__(self, one: Any, two: Any) -> None:
        self.one, self.two = one, two

    def forward(self, x: Any) -> Any:
        return self.two(self.one(x))


class OwnNorm(columns.LayerNormalization):
    """A norm of the user's own, which reads its settings; ``factor`` is a mistake."""

    def __init__(self, features: int, epsilon: float = 1e-5, factor: float = 1.0) -> None:
        super().__init__(features, epsilon)
        self.factor = factor

    def forward(self, x: Any) -> Any:
        return F.layer_norm(x, self.gamma, self.beta, self.epsilon) * self.factor


def _only(report: padiff.Report) -> Finding:
    (found,) = report.sources
    assert found.candidate.path == "one", str(report)
    return found


@pytest.mark.parametrize("kind", [columns.LayerNormalization, OwnNorm])
def test_a_setting_is_the_cause_where_nothing_else_is_left(kind: type) -> None:
    """The class is the framework's own, or computes the same once it is set as the reference's is."""
    found = _only(padiff.diff(Norms(), Port(kind(4, 1e-3), kind(4)), X))
    assert found.cause is not None
    assert found.cause.startswith("eps: 1e-05 in the reference, 0.001")
    assert found.cause.verified


def test_a_setting_that_does_not_explain_the_difference_is_evidence() -> None:
    found = _only(padiff.diff(Norms(), Port(OwnNorm(4, 1e-3, factor=1.5), OwnNorm(4)), X))
    assert found.cause is None, found.cause
    assert [one.kind for one in found.evidence][-1] == "unverified_settings"
    assert "settings differ: eps: 1e-05 in the reference, 0.001" in found.evidence[-1]


def test_what_is_tried_is_put_back() -> None:
    port = Port(OwnNorm(4, 1e-3), OwnNorm(4))
    padiff.diff(Norms(), port, X)
    assert (port.one.epsilon, port.two.epsilon) == (1e-3, 1e-5)


def test_one_setting_everywhere_is_one_source() -> None:
    report = padiff.diff(Norms(), Port(columns.LayerNormalization(4, 1e-3), columns.LayerNormalization(4, 1e-3)), X)
    assert len(report.sources) == 2
    assert str(report).startswith("not aligned: 1 source in 2 places")


def test_a_dataflow_that_cannot_be_followed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> Any:
        msg = "no such hook"
        raise ValueError(msg)

    monkeypatch.setattr("padiff.recording._flow.Follower._begun", refused)
    report = padiff.diff(Norms(), Port(columns.LayerNormalization(4, 1e-3), columns.LayerNormalization(4)), X)
    said = [note.text for note in report.notes if note.kind == "flow_refused"]
    assert len(said) == 2, str(report)
    assert "ValueError: no such hook" in said[0]


class Wired(columns.Layer):
    """One norm after the other, wired otherwise: the second is given what the first was given."""

    def __init__(self) -> None:
        self.one, self.two = columns.LayerNormalization(4), columns.LayerNormalization(4)

    def forward(self, x: Any) -> Any:
        y = self.one(x * 2.0)
        return self.two(x) + y


def test_each_value_that_one_piece_of_code_makes_wrong_is_told_with_why() -> None:
    """They were one source without a cause."""
    report = padiff.diff(Norms(), Wired(), X)
    causes = {one.what.taker: one.cause and str(one.cause) for one in report.sources}
    alone = "{} in the candidate only"
    assert causes == {"": alone.format("add(_, _)"), "one": alone.format("mul(_, 2.0)"), "two": None}, str(report)
    said = str(report)
    assert "the module's own code, before the candidate's one" in said
    assert "one, two -> here -> the output" in said
    assert "the candidate has the reference's input x there" in said
    assert "operations=True compares" in said


class More(rows.Module):
    """A layer, one that may be left out behind it, and a head, which may be scaled."""

    def __init__(self, extra: bool, factor: float = 1.0) -> None:
        self.stem, self.head, self.factor = rows.Linear(4, 4), rows.Linear(4, 4), factor
        self.norm = rows.LayerNorm(4) if extra else None

    def forward(self, x: Any) -> Any:
        x = F.tanh(self.stem(x))
        x = x if self.norm is None else F.relu(self.norm(x))
        return self.head(x) * self.factor


@pytest.mark.parametrize("ours", [True, False])
def test_a_layer_that_one_side_alone_has_is_one_source(ours: bool) -> None:
    """What its code's taker is given follows from it; what is wrong behind that is told beside it."""
    report = padiff.diff(More(ours), More(not ours), X)
    assert str(report).startswith("not aligned: 1 source in 2 places"), str(report)
    side = "reference" if ours else "candidate"
    assert {str(source.cause) for source in report.sources} == {f"norm (layer_norm) is in the {side} only"}
    scaled = padiff.diff(More(ours), More(not ours, factor=1.5), X)
    assert str(scaled).startswith("not aligned: 2 sources"), str(scaled)


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
