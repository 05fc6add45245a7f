"""Name as a cause only what is shown to be one: a setting that differs, and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff
from padiff.judging._forced._both_codes import Slip
from padiff.judging._forced._slip_causes import _cause
from padiff.judging._forced._slips import Search
from padiff.report import SIDES, Finding
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F
from padiff.trace import Call, ModuleRecord

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


@pytest.mark.parametrize("side", [0, 1])
def test_what_one_side_freezes_is_one_source_without_figures(side: int) -> None:
    """A weight and a bias were two; of what is frozen in the reference the difference was `inf`, `NaN or Inf`."""
    models: tuple[Any, Any] = Norms(), Port(columns.LayerNormalization(4), columns.LayerNormalization(4))
    for tensor in models[side].one.parameters():
        tensor.requires_grad = False
    report = padiff.diff(*models, X)
    assert {(one.candidate.path, one.cause and one.cause.name) for one in report.sources} == {("one", "frozen")}
    assert [one.figures for one in report.sources] == [None, None]
    assert str(report).startswith("not aligned: 1 source in 2 places"), str(report)


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
    assert said.startswith("not aligned: 2 sources in 3 places"), said  # what no cause is known of is no third one
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


class Reshaped(rows.Module):
    """Code that gives one value in several shapes."""

    def __init__(self) -> None:
        self.a, self.out = rows.Linear(4, 4), rows.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        y = F.softmax(self.a(x)).reshape(1, 3, 4)
        return self.out(F.tanh(y.reshape(3, 4) - 1.0))


class ReshapedOtherwise(columns.Layer):
    def __init__(self) -> None:
        self.a, self.out = columns.Dense(4, 4), columns.Dense(4, 4)

    def forward(self, x: Any) -> Any:
        y = self.a(x)
        return self.out(F.sigmoid(y * y) * F.tanh(y))


def test_what_one_value_holds_in_several_shapes_is_put_in_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same numbers were put in the same place again and again: so the replays of a call were spent in vain."""
    tried: list[object] = []
    run = Search._with

    def noted(search: Search, put: Any, state: Any) -> Any:
        tried.extend((at, array.tobytes(), *map(str, state.put)) for at, array in put.items())
        return run(search, put, state)

    monkeypatch.setattr(Search, "_with", noted)
    report = padiff.diff(Reshaped(), ReshapedOtherwise(), (np.linspace(-1, 2, 12, dtype=np.float32).reshape(3, 4),))
    assert not report.aligned
    assert len(tried) == len(set(tried)) > 1


class HeadsFirst(rows.Module):
    """Attention with its heads in the batch, one behind the other."""

    def __init__(self) -> None:
        self.q, self.k, self.v, self.o = (rows.Linear(8, 8) for _ in range(4))

    def forward(self, x: Any) -> Any:
        q, k, v = (F.concat([y[..., :4], y[..., 4:]], 0) for y in (self.q(x), self.k(x), self.v(x)))
        bias = x[:, :, :1].transpose(0, 2, 1)
        y = F.softmax(q @ k.transpose(0, 2, 1) * 0.5 + F.concat([bias, bias], 0)) @ v
        return self.o(F.concat([y[:3], y[3:]]))


class HeadsInside(columns.Layer):
    """The same with an axis for heads, behind that of the batch."""

    def __init__(self, scale: float) -> None:
        self.o, self.v, self.k, self.q = (columns.Dense(8, 8) for _ in range(4))
        self.scale = scale

    def forward(self, x: Any) -> Any:
        q, k, v = (y.reshape(3, 5, 2, 4).transpose(0, 2, 1, 3) for y in (self.q(x), self.k(x), self.v(x)))
        y = F.softmax(q @ k.transpose(0, 1, 3, 2) * self.scale + x[:, :, :1].reshape(3, 1, 1, 5)) @ v
        return self.o(y.transpose(0, 2, 1, 3).reshape(3, 5, 8))


@pytest.mark.parametrize("turned", [False, True], ids=["joined", "apart"])
def test_a_cause_is_found_where_joined_axes_are_in_another_order(turned: bool) -> None:
    """What the reference has of heads and batch in one axis was put in as if the batch came first."""
    x = np.random.default_rng(0).standard_normal((3, 5, 8)).astype(np.float32)
    sides = HeadsFirst(), HeadsInside(0.6)
    (source,) = padiff.diff(*(sides[::-1] if turned else sides), x).sources
    assert str(source.cause).startswith("called as mul(a["), str(source.cause)


class Told(rows.Module):
    """A layer whose caller says what to do with its values."""

    def __init__(self) -> None:
        self.mix = rows.Linear(4, 4)

    def forward(self, x: Any, squash: bool = False, scale: float = 1.0, more: Any = None) -> Any:
        y = self.mix(x) * scale + (more["of"] if more else 0.0)
        return F.tanh(y) if squash else y


class Telling(rows.Module):
    def __init__(self, **told: Any) -> None:
        self.inner, self.out, self.told = Told(), rows.Linear(4, 4), told

    def forward(self, x: Any) -> Any:
        more = {"more": {"of": x}} if "more" in self.told else {}
        return self.out(self.inner(x, **{**self.told, **more}))


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"squash": True, "scale": 0.5}, None),
        ({"squash": True}, "inner(_, squash=True)"),
        ({"squash": True, "more": True}, "inner(_, squash=True, more={'of': _})"),
        ({"squash": False, "scale": 0.5}, "inner(_, squash=False, scale=0.5)"),
    ],
)
def test_what_a_caller_tells_a_module_is_evidence(told: dict[str, Any], said: str | None) -> None:
    """The code of the module that differs is right on both sides."""
    report = padiff.diff(Telling(squash=True, scale=0.5), Telling(**told), X)
    shown = [e for one in report.sources for e in one.evidence if e.kind == "called_with"]
    assert [one.figures["candidate"] for one in shown] == ([] if said is None else [said]), str(report)


_MEANS = sum(np.eye(8, 4, -shift, dtype=np.float32) for shift in range(5)) / 5


class Edges(rows.Module):
    """Take averages off, twice, of what has its edges repeated in front and behind."""

    def __init__(self) -> None:
        self.first, self.last = rows.Linear(4, 4), rows.Linear(4, 4)

    def smooth(self, x: Any) -> Any:
        edges = x[..., :1], x[..., -1:]
        front, back = F.concat([edges[0], edges[0]]), F.concat([edges[1], edges[1]])
        y = F.concat([front, x, back])
        return x - (y @ rows.Tensor(_MEANS)).reshape(15, 4).reshape(*x.shape)

    def forward(self, x: Any) -> Any:
        return self.last(self.smooth(F.tanh(self.smooth(self.first(x)))))


class Mirrored(columns.Layer):
    """The same, mirrored there."""

    def __init__(self) -> None:
        self.first, self.last = columns.Dense(4, 4), columns.Dense(4, 4)

    def smooth(self, x: Any) -> Any:
        y = x[..., np.array([2, 1, 0, 1, 2, 3, 2, 1])]
        return x - (y @ columns.Tensor(_MEANS)).reshape(15, 4).reshape(*x.shape)

    def forward(self, x: Any) -> Any:
        return self.last(self.smooth(F.tanh(self.smooth(self.first(x)))))


def test_what_is_as_large_as_a_value_is_put_in_before_parts_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every part of what is padded was put in first: the replays of a call were spent, and one call had no cause."""
    widths: set[int] = set()
    run = Search._with

    def noted(search: Search, put: Any, state: Any) -> Any:
        widths.update(array.shape[-1] for array in put.values())
        return run(search, put, state)

    monkeypatch.setattr(Search, "_with", noted)
    x = np.random.default_rng(0).standard_normal((3, 5, 4)).astype(np.float32)
    (source,) = padiff.diff(Edges(), Mirrored(), x).sources
    assert "concat([_, _, _]) in the reference, as getitem(" in str(source.cause)
    assert widths == {4, 8}


@pytest.mark.parametrize(
    ("kinds", "given", "name"),
    [
        (("silu", "relu"), (["a"], ["a"]), "settings"),
        (("attention", "linear"), (["a", "b"], ["other"]), "code"),
    ],
)
def test_layers_of_other_kinds_that_are_given_something_else_are_no_setting(
    kinds: tuple[str, str], given: tuple[list[str], list[str]], name: str
) -> None:
    """A decoder's attention was told as `kind: attention in the reference, linear in the candidate`, its last layer."""
    ours, theirs = (Call(0, ModuleRecord(kind, kind, kind), 0, None, training=True) for kind in kinds)
    named = {side: [one] for side, one in zip(SIDES, given, strict=True)}
    cause = _cause(Slip((ours,), (theirs,), named=named))
    assert cause is not None
    assert cause.name == name, cause


class Blocks(rows.Module):
    """Three blocks of the same code."""

    def __init__(self, code: Any) -> None:
        self.blocks = [rows.Sequential(rows.Linear(4, 4), Written(code)) for _ in range(3)]
        self.all = rows.Sequential(*self.blocks)

    def forward(self, x: Any) -> Any:
        return self.all(x)


class Written(rows.Module):
    def __init__(self, code: Any) -> None:
        self.first, self.last, self.code = rows.Linear(4, 4), rows.Linear(4, 4), code

    def forward(self, x: Any) -> Any:
        return self.last(self.code(self.first(x)))


def test_what_showed_nothing_in_one_block_is_hardly_searched_for_in_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each block's code was run 32 times anew, though nothing was found in the first."""
    made: list[Search] = []

    def noted(*given: Any) -> Search:
        made.append(Search(*given))
        return made[-1]

    def right(x: Any) -> Any:
        return F.tanh(x * x + F.sigmoid(x) * 3) * F.softmax(x * F.tanh(x)) + F.softmax(x + F.tanh(x * 2))

    def wrong(x: Any) -> Any:
        return F.sigmoid(x + F.tanh(x * x) * 2) * F.softmax(F.sigmoid(x) - x) + F.tanh(x * F.softmax(x * 3))

    monkeypatch.setattr("padiff.judging._forced._slip_causes.Search", noted)
    report = padiff.diff(Blocks(right), Blocks(wrong), np.linspace(-1, 2, 12, dtype=np.float32).reshape(3, 4))
    assert not report.aligned
    first, *others = (one.runs for one in made)
    assert first > 8
    assert max(others) <= 4
