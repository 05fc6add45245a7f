"""Compare scripts of which one calls its models once on a batch, or a sequence, and the other on each part of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.refinement import _cut_calls
from padiff.report import Phase
from padiff.testing.toy import functional, rows

TIMES, BATCH, SIZE = 3, 4, 6


class Net(rows.Module):
    """Layers of a script: a coder, a cell, a head of what that gives, and a frozen judge of it."""

    def __init__(self, slope: float) -> None:
        self.coder, self.cell = rows.Linear(SIZE, SIZE), rows.Linear(SIZE, SIZE)
        self.head, self.judge = Head(slope), Head(1.0)

    def forward(self) -> Any:
        raise NotImplementedError


class Head(rows.Module):
    def __init__(self, slope: float) -> None:
        self.first, self.last, self.slope = rows.Linear(SIZE, SIZE), rows.Linear(SIZE, 2), slope

    def forward(self, x: Any) -> Any:
        return self.last(functional.tanh(self.first(x) * np.float32(self.slope)))


def joined(parts: list[Any], how: str) -> Any:
    """Put steps behind each other: along a new first axis, or along the first one."""
    return functional.concat([one.reshape(1, *one.shape) if how == "stacked" else one for one in parts], 0)


def train(
    folder: Path,
    how: str,
    *,
    slope: float = 1.0,
    detached: bool = False,
    weight: float = 1.0,
    rate: float = 0.1,
    moved: bool = False,
    nudged: bool = False,
) -> None:
    """Train on sequences: a call for each step, or one for all that are ``stacked``, or ``flat``; the cell steps.

    What it gives may be ``nudged`` by as much as rounding.
    """
    np.random.seed(0)
    net, rng = Net(slope), np.random.default_rng(1)
    for parameter in net.judge.parameters():
        parameter.requires_grad = False
    optimizer = rows.SGD([*net.coder.parameters(), *net.cell.parameters(), *net.head.parameters()], rate)
    with padiff.record(net, folder, optimizer=optimizer) as recorder:
        for _ in range(2):
            x = rng.standard_normal((TIMES, BATCH, SIZE)).astype(np.float32)
            given = [rows.Tensor(one.copy()) for one in x]
            codes = [net.coder(one) for one in (given if how == "steps" else [joined(given, how)])]
            if how != "steps":
                codes = [codes[0].reshape(TIMES, BATCH, SIZE)[time] for time in range(TIMES)]
            states = [rows.Tensor(np.zeros((BATCH, SIZE), np.float32))]
            for code in codes[::-1] if moved else codes:
                states.append(net.cell(states[-1] + code))
            states[1:] = [one * np.nextafter(np.float32(1), np.float32(2)) if nudged else one for one in states[1:]]
            taken = states[1:] if how == "steps" else [joined(states[1:], how)]
            loss = (states[-1] * states[-1]).sum()
            for one in taken:
                given_up = functional.detach(one)
                y, wanted = net.head(given_up if detached else one), functional.detach(net.judge(given_up))
                loss = loss + ((y - wanted) * y).sum() * np.float32(weight)
            optimizer.clear()
            loss.backward()
            optimizer.step()
            recorder.step(float(loss.data))


@pytest.mark.parametrize("how", ["stacked", "flat"])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    ("fault", "place"),
    [
        ({}, None),  # the head's calls on another number of rows were sources
        ({"slope": 1.1}, (0, Phase.FORWARD, "head")),
        ({"detached": True}, (0, Phase.BACKWARD, "cell")),  # the head's input has other uses on one side
        ({"weight": 1.1}, (0, Phase.LOSS, "")),
        ({"rate": 0.2}, (0, Phase.UPDATE, "")),
        ({"moved": True}, (0, Phase.FORWARD, "cell")),
    ],
)
def test_a_script_may_call_each_model_on_all_at_once(
    tmp_path: Path, how: str, turned: bool, fault: dict[str, Any], place: Any
) -> None:
    train(tmp_path / "a", "steps" if turned else how)
    train(tmp_path / "b", how if turned else "steps", **fault)
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert [(one.step, one.phase, one.candidate.path) for one in report.sources] == [place] * (place is not None), (
        report
    )
    assert report.aligned is (place is None), report
    told = [note.data for note in report.notes if note.kind == "slices"]
    assert {None} <= {one.get("name") for one in told} <= {None, "head", "judge"}
    assert len(told) == 3 or fault
    assert {(one["side"], one["count"], one["losses"]) for one in told} == {
        (("reference", "candidate")[turned], 3, False)
    }


class Placed(rows.Module):
    """A model that adds to all rows what a layer makes of places, which are the same whatever the rows."""

    def __init__(self) -> None:
        self.places, self.first, self.last = (rows.Linear(SIZE, SIZE) for _ in range(3))

    def forward(self, x: Any) -> Any:
        places = rows.Tensor(np.eye(SIZE, dtype=np.float32)[:1])
        return self.last(functional.tanh(self.first(x) + self.places(places)))


def rank(folder: Path, *, apart: bool, cut: bool = False) -> None:
    """Train on winners and losers, in one call or ``apart``; the losers' scores may be ``cut`` off the graph."""
    np.random.seed(0)
    model, rng = Placed(), np.random.default_rng(1)
    optimizer = rows.SGD(model.parameters(), 0.1)
    with padiff.record(model, folder, optimizer=optimizer) as recorder:
        for _ in range(2):
            won, lost = rng.standard_normal((2, BATCH, SIZE)).astype(np.float32)
            if apart:
                won, lost = model(rows.Tensor(won)), model(rows.Tensor(lost))
            else:
                both = model(rows.Tensor(np.concatenate([won, lost])))
                won, lost = both[:BATCH], both[BATCH:]
            loss = ((won - (functional.detach(lost) if cut else lost)) * won).sum()
            optimizer.clear()
            loss.backward()
            optimizer.step()
            recorder.step(float(loss.data))


@pytest.mark.parametrize("cut", [False, True])
def test_what_one_slice_is_sent_no_gradient_for_is_one_source(tmp_path: Path, cut: bool) -> None:
    """The gradient of what is alike in all slices is known of none of them: its layer was another source."""
    rank(tmp_path / "a", apart=False)
    rank(tmp_path / "b", apart=True, cut=cut)
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert report.aligned is not cut, report
    assert [(one.what.kind, one.candidate.call) for one in report.sources] == [("output_gradient", 1)] * cut, report


@pytest.mark.parametrize("most", [1024, 1])
def test_what_a_model_made_is_cut_by_what_is_near(tmp_path: Path, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounding makes each row another one; of many rows those in their order are."""
    monkeypatch.setattr(_cut_calls, "_MOST", most)
    train(tmp_path / "a", "flat", nudged=True)
    train(tmp_path / "b", "steps")
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert not [one for one in report.sources if one.phase is Phase.FORWARD], report
    assert {note.data.get("name") for note in report.notes if note.kind == "slices"} == {None, "head", "judge"}


def judge(folder: Path, order: str, *, weight: float = 1.0, slope: float = 1.0, forgets: bool = False) -> None:
    """Train on real and made ones in ``order``, together or apart, and the real ones again for a penalty.

    The loss may be one that ``forgets`` the real ones.
    """
    np.random.seed(0)
    net, rng = Net(slope), np.random.default_rng(1)
    with padiff.record(net, folder) as recorder:
        real, made = (rng.standard_normal((BATCH, SIZE)).astype(np.float32) for _ in range(2))
        given = {"real": real, "made": made, "penalty": real, "both": np.concatenate([real, made])}
        y = {name: net.head(rows.Tensor(given[name].copy())) for name in order.split()}
        judged = (y["both"][:BATCH], y["both"][BATCH:]) if "both" in y else (y["real"], y["made"])
        loss = -judged[1].sum() if forgets else (judged[0] * judged[0]).sum() - judged[1].sum()
        loss = loss + (y["penalty"].sum() if "penalty" in y else net.coder(rows.Tensor(real)).sum()) * np.float32(
            weight
        )
        loss.backward()
        recorder.step(float(loss.data))


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("weight", [1.0, 2.0])
def test_of_calls_on_one_batch_gradients_tell_which_is_a_slice(tmp_path: Path, turned: bool, weight: float) -> None:
    """None of them was compared, and what the parameters' gradients are was a source at a layer."""
    orders = ["both penalty", "real made penalty"]
    for name, order, times in zip("ab", reversed(orders) if turned else orders, (1.0, weight), strict=True):
        judge(tmp_path / name, order, weight=times)
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    found = [(one.phase, one.candidate.path, one.what.kind) for one in report.sources]
    assert found == [(Phase.BACKWARD, "head", "output_gradient")] * (weight > 1), report
    assert report.aligned is (weight == 1)
    assert [note.data["count"] for note in report.notes if note.kind == "slices"] == [2]


def test_a_slice_that_gets_no_gradient_is_a_slice(tmp_path: Path) -> None:
    """Nothing was compared, and the report had no source."""
    judge(tmp_path / "a", "both penalty")
    judge(tmp_path / "b", "real made penalty", forgets=True)
    (source,) = padiff.compare(tmp_path / "a", tmp_path / "b").sources
    assert (source.phase, source.candidate.path, source.what.kind) == (Phase.BACKWARD, "head", "output_gradient")


def test_what_is_called_first_may_be_called_on_other_batches_in_turn(tmp_path: Path) -> None:
    """A layer behind a fault in it was told as given other inputs: that of one batch was compared with the other's."""
    judge(tmp_path / "a", "real made")
    judge(tmp_path / "b", "made real", slope=2.0)
    (source,) = padiff.compare(tmp_path / "a", tmp_path / "b").sources
    assert (source.phase, source.candidate.path, source.what.kind) == (Phase.FORWARD, "head", "input"), source


class Causal(rows.Module):
    """Adds up what it was given so far, and keeps it; ``late``: also what comes next."""

    def __init__(self, *, late: bool = False, first: bool = False) -> None:
        self.taken, self.head, self.late, self.first = rows.Linear(SIZE, SIZE), rows.Linear(SIZE, 2), late, first

    def forward(self, x: Any, kept: Any = None) -> Any:
        new = self.taken(x)
        kept = new if kept is None else functional.concat([kept, new], 1)
        times = x.shape[1], kept.shape[1]
        seen = np.tri(*times, times[1] - times[0] + self.late, dtype=np.float32)
        y = self.head(functional.tanh(rows.Tensor(seen) @ kept))
        return (kept, y) if self.first else (y, kept)


def generate(folder: Path, model: Causal, cuts: list[int], *, trained: bool, share: float) -> None:
    """Run it on a sequence, cut, and on two steps behind that; a ``share`` of what is kept is handed on."""
    with padiff.record(model, folder) as recorder:
        x = np.random.default_rng(1).standard_normal((BATCH, 7, SIZE)).astype(np.float32)
        kept: tuple[Any, ...] = ()
        loss = rows.Tensor(np.zeros((), np.float32))
        for part in np.split(x, [*cuts, 5, 6], 1):
            given, y = model(rows.Tensor(part.copy()), *kept)[:: 1 if model.first else -1]
            kept, loss = (given * np.float32(share),), loss + (y * y).sum()
        if trained:
            loss.backward()
        recorder.step()


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("cuts", [[2], [1, 2, 4]])
@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize(("late", "share"), [(False, 1.0), (True, 1.0), (False, 0.9)])
def test_a_prompt_may_be_cut_where_what_is_kept_grows(
    tmp_path: Path, turned: bool, cuts: list[int], trained: bool, late: bool, share: float
) -> None:
    """The calls were compared in their order, and the inputs of the first were another batch."""
    np.random.seed(0)
    models = Causal(), Causal(late=late, first=True)
    padiff.transfer(*models)
    for n, (model, how) in enumerate(zip(models, (cuts, []) if turned else ([], cuts), strict=True)):
        generate(tmp_path / "ab"[n], model, how, trained=trained, share=share if n else 1.0)
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert report.aligned is (not late and share == 1), report
    assert len(report.sources) == (late or share < 1), report
    assert [note.data["count"] for note in report.notes if note.kind == "slices"] == [len(cuts) + 1]


def crop(folder: Path, *, together: bool, weight: float = 1.0) -> None:
    """Train on two crops of each of two sizes: each by itself, or those of one size together."""
    np.random.seed(0)
    net, rng = Head(1.0), np.random.default_rng(1)
    optimizer = rows.SGD(net.parameters(), 0.1)
    with padiff.record(net, folder, optimizer=optimizer) as recorder:
        crops = [rng.standard_normal((BATCH, size, SIZE)).astype(np.float32) for size in (5, 5, 3, 3)]
        given = [np.concatenate(crops[:2]), np.concatenate(crops[2:])] if together else crops
        y = [net(rows.Tensor(one.copy())).mean(1) for one in given]
        loss = (y[0] * y[0]).sum() + (rows.Tensor(np.zeros((), np.float32)) if together else (y[1] * y[1]).sum())
        for one in y[1 if together else 2 :]:
            loss = loss + one.sum() * np.float32(weight)
        loss.backward()
        optimizer.step()
        recorder.step(float(loss.data))


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("weight", [1.0, 1.5])
def test_batches_of_several_sizes_are_cut_each_by_itself(tmp_path: Path, turned: bool, weight: float) -> None:
    crop(tmp_path / "a", together=not turned)
    crop(tmp_path / "b", together=turned, weight=weight)
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert report.aligned is (weight == 1), report
    assert [one.phase for one in report.sources] == [Phase.LOSS] * (weight > 1), report


class Reader(rows.Module):
    """A reader of texts: a layer on each word, one on each place, and a head of what the words of a text make."""

    def __init__(self, slope: float, first: int, *, joined: bool) -> None:
        self.first = first
        self.word, self.place, self.head = rows.Linear(SIZE, SIZE), rows.Linear(1, SIZE), Head(slope)
        self.joined = joined

    def forward(self, words: Any, mask: Any) -> Any:
        places = self.place(
            rows.Tensor(np.arange(self.first, self.first + words.shape[1], dtype=np.float32)[:, None] / 8)
        )
        words = functional.tanh(self.word(words) + places)
        words = words + (words * mask).sum(1).reshape(-1, 1, SIZE) / mask.sum(1).reshape(-1, 1, 1)
        made = self.head(words.reshape(-1, SIZE) if self.joined else words)
        return made.reshape(*words.shape[:2], 2)


def read(
    folder: Path, parts: int, *, joined: bool = False, slope: float = 1.0, own: bool = False, first: int = 0
) -> None:
    """Train on texts in so many parts, each padded to its longest text; each with a mean of its ``own``, by a slip.

    Places are counted from the ``first`` one.
    """
    np.random.seed(0)
    net, rng = Reader(slope, first, joined=joined), np.random.default_rng(1)
    optimizer = rows.SGD(net.parameters(), 0.1)
    with padiff.record(net, folder, optimizer=optimizer) as recorder:
        for lengths in ([5, 3, 2, 4], [2, 4, 2, 5]):
            texts = [rng.standard_normal((length, SIZE)).astype(np.float32) for length in lengths]
            texts[2] = texts[1][: lengths[2]]  # one text begins with another, which comes first
            optimizer.clear()
            total = 0.0
            for part in reversed(range(parts)):
                some = texts[part * BATCH // parts : (part + 1) * BATCH // parts]
                longest = max(map(len, some))
                words, mask = (
                    np.zeros((len(some), longest, SIZE), np.float32),
                    np.zeros((len(some), longest, 1), np.float32),
                )
                for row, text in enumerate(some):
                    words[row, : len(text)], mask[row, : len(text)] = text, 1.0
                count = np.float32(mask.sum() * parts if own else sum(lengths))
                y = net(rows.Tensor(words), rows.Tensor(mask))
                loss = (y * y * rows.Tensor(mask)).sum() / count
                loss.backward()
                total += float(loss.data)
            optimizer.step()
            recorder.step(total)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("parts", "joined"), [(2, False), (2, True), (4, True)])
@pytest.mark.parametrize(
    ("fault", "place"),
    [
        ({}, None),
        ({"slope": 1.1}, (Phase.FORWARD, "head")),
        ({"first": 1}, (Phase.FORWARD, "")),
        ({"own": True}, (Phase.BACKWARD, "")),
    ],
)
def test_parts_may_pad_their_texts_to_lengths_of_their_own(
    tmp_path: Path, fault: dict[str, Any], place: Any, parts: int, joined: bool, turned: bool
) -> None:
    """The inputs themselves differed, and nothing else was compared."""
    read(tmp_path / "whole", 1, joined=joined)
    read(tmp_path / "parts", parts, joined=joined, **fault)
    report = padiff.compare(*(tmp_path / name for name in ("whole", "parts")[:: -1 if turned else 1]))
    assert [(one.phase, one.candidate.path or "") for one in report.sources] == [place] * (place is not None), report
    assert report.aligned is (place is None), report
    assert [note.data["count"] for note in report.notes if note.kind == "slices"] == [parts], report
    if "own" in fault:
        assert "of each micro-batch the backward pass starts from a multiple of its own" in str(report.sources[0].cause)


def test_what_a_part_lacks_is_no_padding() -> None:
    """A script that cuts its texts off is none that pads them otherwise."""
    for ends, count in (((0, 0), 2), ((0, 3), 0), ((3, 6), 0)):
        whole = np.array([[1, 2, ends[0]], [4, 5, ends[1]]])
        assert _cut_calls._padded_apart(whole, [whole[:1, :2], whole[1:, :2]])[0] == count
