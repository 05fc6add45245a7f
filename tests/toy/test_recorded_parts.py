"""Compare recorded training loops of which one calls a model, and the other its parts, which give less each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.report import Phase
from padiff.testing.toy import functional, rows

SIZE = 6


class Encoder(rows.Module):
    def __init__(self) -> None:
        self.first, self.mean, self.spread = rows.Linear(SIZE, SIZE), rows.Linear(SIZE, SIZE), rows.Linear(SIZE, SIZE)

    def forward(self, x: Any) -> Any:
        hidden = functional.tanh(self.first(x))
        return self.mean(hidden), self.spread(hidden)


class Whole(rows.Module):
    """An autoencoder that samples by given noise, and returns what its encoder gives behind what it makes of that."""

    def __init__(self) -> None:
        self.encoder, self.decoder = Encoder(), rows.Linear(SIZE, SIZE)

    def forward(self, x: Any, noise: Any) -> Any:
        mean, spread = self.encoder(x)
        return self.decoder(mean + noise * functional.sigmoid(spread)), mean, spread


class Parts(rows.Module):
    def __init__(self) -> None:
        self.enc, self.dec = Encoder(), rows.Linear(SIZE, SIZE)

    def forward(self) -> Any:
        raise NotImplementedError


class Flat(rows.Module):
    """The same as one block, so that nothing of it has the encoder as its counterpart."""

    def __init__(self) -> None:
        self.a, self.b, self.c, self.d = (rows.Linear(SIZE, SIZE) for _ in range(4))

    def forward(self, x: Any, noise: Any) -> Any:
        hidden = functional.tanh(self.a(x))
        mean, spread = self.b(hidden), self.c(hidden)
        return self.d(mean + noise * functional.sigmoid(spread)), mean, spread


def train(folder: Path, model: Any, fault: str | None = None) -> None:
    rng = np.random.default_rng(1)
    optimizer = rows.SGD(model.parameters(), 0.1)
    with padiff.record(model, folder, optimizer=optimizer) as recorder:
        for _ in range(2):
            x, noise = (rows.Tensor(rng.standard_normal((4, SIZE)).astype(np.float32)) for _ in range(2))
            if isinstance(model, Parts):
                mean, spread = model.enc(x)
                mean, spread = (spread, mean) if fault == "exchanged" else (mean, spread)
                out = model.dec(mean + noise * functional.sigmoid(spread * np.float32(2 if fault == "noise" else 1)))
            else:
                out, mean, spread = model(x, noise)
            kept = (mean * mean).mean() + (spread * spread * spread).mean() * np.float32(3 if fault == "loss" else 1)
            loss = ((out - x) * (out - x)).mean() + kept
            loss.backward()
            optimizer.step()
            optimizer.clear()
            recorder.step(float(loss.data))


def both(tmp_path: Path, reference: type, fault: str | None = None) -> padiff.Report:
    np.random.seed(0)
    models = reference(), Parts()
    for ours, theirs in zip(models[0].parameters(), models[1].parameters(), strict=True):
        theirs.data[...] = ours.data
    train(tmp_path / "a", models[0])
    train(tmp_path / "b", models[1], fault)
    return padiff.compare(tmp_path / "a", tmp_path / "b")


@pytest.mark.parametrize("reference", [Whole, Flat])
def test_what_a_part_gives_has_places_of_its_own(tmp_path: Path, reference: type) -> None:
    """The second output of the model was compared with the second of its encoder: `output [1] differs`."""
    report = both(tmp_path, reference)
    assert report.aligned, str(report)


@pytest.mark.parametrize("reference", [Whole, Flat])
@pytest.mark.parametrize("fault", ["exchanged", "noise", "loss"])
def test_a_fault_of_a_script_that_calls_the_parts_is_one_source(tmp_path: Path, reference: type, fault: str) -> None:
    """A loss that follows from what the decoder is given was another source."""
    (source,) = both(tmp_path, reference, fault).sources
    if fault == "loss":
        assert source.phase in (Phase.LOSS, Phase.BACKWARD)
    else:
        assert (source.phase, source.candidate.path, source.what.kind) == (Phase.FORWARD, "dec", "input")


class Doubled(rows.Module):
    """Two layers on what is twice as long; one is ``late`` where it is given half, and its output is doubled."""

    def __init__(self, *, late: bool) -> None:
        self.first, self.a, self.b, self.late = (
            rows.Linear(SIZE, SIZE),
            rows.Linear(SIZE, 4),
            rows.Linear(SIZE, 4),
            late,
        )

    def forward(self, x: Any) -> Any:
        hidden = functional.tanh(self.first(x))
        both = functional.concat([hidden, hidden], 0)
        other = self.b(hidden) if self.late else self.b(both)
        return self.a(both) * (functional.concat([other, other], 0) if self.late else other)


@pytest.mark.parametrize("late", [(False, True), (True, False)])
@pytest.mark.parametrize("term", [0.0, 0.1])
def test_what_is_used_once_more_on_one_side_gets_another_gradient(
    tmp_path: Path, late: tuple[bool, bool], term: float
) -> None:
    """Beside a fault elsewhere the gradient of what both layers take on one side was a source."""
    np.random.seed(0)
    models = [Doubled(late=one) for one in late]
    for ours, theirs in zip(*(list(model.parameters()) for model in models), strict=True):
        theirs.data[...] = ours.data
    for name, model, added in zip("ab", models, (0.0, term), strict=True):
        x = np.random.default_rng(1).standard_normal((4, SIZE)).astype(np.float32)
        with padiff.record(model, tmp_path / name) as recorder:
            out = model(rows.Tensor(x))
            ((out * out).mean() + (model.first.weight.tanh() * np.float32(added)).sum()).backward()
            recorder.step()
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert [one.candidate.path for one in report.sources] == (["first"] if term else []), str(report)
