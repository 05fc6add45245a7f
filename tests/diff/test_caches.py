"""Look into caches of keys and values, and whatever else holds tensors: restored between runs, compared, told."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import padiff
from padiff import Phase, Verdict

X = np.random.default_rng(0).standard_normal((2, 5, 8), dtype=np.float32)


class Cache:
    """What a user would write: keys and values of each layer, and how many were seen."""

    def __init__(self) -> None:
        self.held: list[tuple[Any, Any]] = []
        self.seen = 0

    def update(self, k: Any, v: Any, index: int) -> tuple[Any, Any]:
        if index < len(self.held):
            k, v = (torch.cat(both, 1) for both in zip(self.held[index], (k, v), strict=True))
            self.held[index] = k, v
        else:
            self.held.append((k, v))
        self.seen += index == 0
        return self.held[index]


def update(cache: Any, k: Any, v: Any, index: int) -> tuple[Any, Any]:
    if isinstance(cache, Cache):
        return cache.update(k, v, index)
    if index not in cache:
        cache[index] = k, v
    else:
        cache[index] = tuple(torch.cat(both, 1) for both in zip(cache[index], (k, v), strict=True))
    return cache[index]


class Attention(torch.nn.Module):
    def __init__(self, index: int, *, wrong: bool) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (torch.nn.Linear(8, 8) for _ in range(4))
        self.index, self.scale = index, 0.4 if wrong else 8**-0.5

    def forward(self, x: Any, cache: Any = None) -> Any:
        k, v = self.k(x), self.v(x)
        if cache is not None:
            k, v = update(cache, k, v, self.index)
        return self.o(torch.softmax(self.q(x) @ k.mT * self.scale, -1) @ v)


class Decoder(torch.nn.Module):
    """A decoder that makes a cache, or takes one, or has none."""

    def __init__(self, make: Callable[[], Any] | None = None, *, wrong: bool = False) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList(Attention(index, wrong=wrong and index == 1) for index in range(3))
        self.head, self.make = torch.nn.Linear(8, 4), make

    def forward(self, x: Any, cache: Any = None) -> Any:
        cache = cache if cache is not None or self.make is None else self.make()
        for block in self.blocks:
            x = x + block(x, cache)
        x = self.head(x)
        return x if cache is None else (x, cache)


def filled(cache: Any) -> Any:
    numbers = np.random.default_rng(1)
    for index in range(3):
        keys, values = (torch.tensor(numbers.standard_normal((2, 3, 8), dtype=np.float32)) for _ in range(2))
        update(cache, keys, values, index)
    return cache


def places(report: padiff.Report) -> set[tuple[str | None, Phase]]:
    return {(found.candidate.path, found.phase) for found in report.sources}


@pytest.mark.parametrize("make", [Cache, dict])
@pytest.mark.parametrize("start", [lambda cache: cache, filled], ids=["empty", "filled"])
def test_a_cache_that_is_given_is_as_it_was_in_every_run(make: Any, start: Any) -> None:
    """Before, a second run met what the first had left in it."""
    given = start(make())
    before = repr(given) if isinstance(given, dict) else repr(vars(given))
    assert padiff.diff(Decoder(), Decoder(), (X, given)).aligned
    assert before == (repr(given) if isinstance(given, dict) else repr(vars(given)))
    report = padiff.diff(Decoder(), Decoder(wrong=True), (X, given))
    assert places(report) == {("blocks.1", Phase.FORWARD)}, report


@pytest.mark.parametrize("make", [Cache, dict])
def test_a_cache_that_is_returned_is_compared(make: Any) -> None:
    assert padiff.diff(Decoder(make), Decoder(dict), (X,)).aligned
    report = padiff.diff(Decoder(make), Decoder(make, wrong=True), (X,))
    assert places(report) == {("blocks.1", Phase.FORWARD)}, report


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("wrong", [False, True])
def test_a_cache_on_one_side_is_told_and_wakes_no_other_alarm(side: int, wrong: bool) -> None:
    """Before, every attention was a source of the backward pass, or nothing was said of the cache at all."""
    models = [Decoder(Cache if index == side else None, wrong=wrong and index == 1) for index in range(2)]
    report = padiff.diff(*models, (X,))
    faults = [found for found in report.sources if found.verdict is not Verdict.UNMATCHED]
    assert {found.candidate.path for found in report.sources if found not in faults} == {""}
    assert {(found.candidate.path, found.phase) for found in faults} == (
        {("blocks.1", Phase.FORWARD)} if wrong else set()
    ), report


class Heads:
    """What a library of its own would keep: heads before the time."""

    def __init__(self) -> None:
        self.layers: list[Any] = []

    def update(self, k: Any, v: Any, index: int) -> tuple[Any, Any]:
        k, v = (one.unflatten(-1, (4, 2)).transpose(1, 2) for one in (k, v))
        self.layers.append(SimpleNamespace(keys=k, values=v))
        return tuple(one.transpose(1, 2).flatten(2) for one in (k, v))  # type: ignore[return-value]


class Times(Cache):
    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        self.factor = factor

    def update(self, k: Any, v: Any, index: int) -> tuple[Any, Any]:
        factor = self.factor if index == 1 else 1.0
        self.held.append((k.unflatten(-1, (4, 2)), v.unflatten(-1, (4, 2)) * factor))
        return tuple(one.flatten(2) for one in self.held[-1])  # type: ignore[return-value]


@pytest.mark.parametrize("time", [5, 4])
def test_a_cache_may_hold_heads_and_times_in_another_order(monkeypatch: pytest.MonkeyPatch, time: int) -> None:
    """As Hugging Face's and PaddleNLP's: no output of one side was the other's counterpart."""
    monkeypatch.setattr(f"{__name__}.update", lambda cache, k, v, index: cache.update(k, v, index))
    x = X[:, :time]
    report = padiff.diff(Decoder(Heads), Decoder(Times), (x,))
    assert report.aligned, str(report)
    assert "axis_order" in {note.kind for note in report.notes}
    report = padiff.diff(Decoder(Heads), Decoder(lambda: Times(1.01)), (x,))
    assert places(report) == {("blocks.1", Phase.FORWARD)}, str(report)


class Transposed(torch.nn.Module):
    def __init__(self, form: Callable[[Any], Any]) -> None:
        super().__init__()
        self.layer, self.form = torch.nn.Linear(8, 4), form

    def forward(self, x: Any) -> Any:
        return self.form(self.layer(x))


def test_an_output_is_owed_in_its_order_whatever_it_is_called() -> None:
    """Only a cache may be in an order of its own: a transposition that was forgotten is a fault."""
    ours = Transposed(lambda y: {"logits": y})
    for shape in ((2, 5), (4, 4)):
        x = np.random.default_rng(0).standard_normal((*shape, 8), dtype=np.float32)
        report = padiff.diff(ours, Transposed(lambda y: (y.transpose(0, 1),)), (x,))
        assert not report.aligned
        assert places(report) == {("", Phase.FORWARD)}, str(report)


class Pair(torch.nn.Module):
    """Two results in whatever container."""

    def __init__(self, pack: Callable[[Any, Any], Any], *, wrong: bool = False) -> None:
        super().__init__()
        self.one, self.two, self.factor, self.pack = torch.nn.Linear(8, 4), torch.nn.Linear(8, 4), 1 + wrong, pack

    def forward(self, x: Any) -> Any:
        return self.pack(self.one(x) * self.factor, self.two(x))


class Slotted:
    __slots__ = ("aux", "out")

    def __init__(self, out: Any, aux: Any) -> None:
        self.out, self.aux = out, aux


@pytest.mark.parametrize("pack", [Slotted, lambda one, two: SimpleNamespace(out=one, aux={"two": two})])
def test_what_only_holds_data_is_looked_into(pack: Any) -> None:
    """Before, the model returned no tensor."""
    assert padiff.diff(Pair(pack), Pair(pack), (X,)).aligned
    assert places(padiff.diff(Pair(pack), Pair(pack, wrong=True), (X,))) == {("", Phase.FORWARD)}


def test_packed_sequences_go_through() -> None:
    """Before, padiff raised in the first module that was given one."""
    pack, pad = torch.nn.utils.rnn.pack_padded_sequence, torch.nn.utils.rnn.pad_packed_sequence

    class Recurrent(torch.nn.Module):
        def __init__(self, *, wrong: bool = False) -> None:
            super().__init__()
            self.gru, self.head, self.wrong = torch.nn.GRU(8, 8, batch_first=True), torch.nn.Linear(8, 4), wrong

        def forward(self, x: Any, lengths: Any) -> Any:
            packed, _ = self.gru(pack(x, lengths, batch_first=True, enforce_sorted=False))
            return self.head(pad(packed, batch_first=True)[0] * (1.1 if self.wrong else 1.0))

    inputs = (X, np.array([3, 5]))
    assert padiff.diff(Recurrent(), Recurrent(), inputs).aligned
    report = padiff.diff(Recurrent(), Recurrent(wrong=True), inputs)
    assert places(report) == {("", Phase.FORWARD)}, report


def test_what_one_model_returns_alone_is_one_finding_with_shapes() -> None:
    """Before, each tensor of a cache was a source of its own."""
    report = padiff.diff(Decoder(Cache), Decoder(), (X,))
    (found,) = report.sources
    assert found.what == "output [1]"
    assert found.evidence[0] == (
        "the reference returns [1].held[0][0] float32[2, 5, 8], [1].held[0][1] float32[2, 5, 8], "
        "[1].held[1][0] float32[2, 5, 8] and 3 more, the candidate nothing like them: "
        "it returns a tensor float32[2, 5, 4]"
    )
    report = padiff.diff(Pair(lambda a, b: (a, b)), Pair(lambda a, b: (a, b[:, :3])), (X,))
    (found,) = report.sources
    assert found.evidence[0] == "the reference returns [1] float32[2, 5, 4], the candidate [1] float32[2, 3, 4]"
