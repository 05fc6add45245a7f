"""Compare recorded scripts that step an optimizer several times in a step, and make calls in an order of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.report import Phase
from padiff.testing.toy import functional, rows

SIZE = 6


class Critic(rows.Module):
    def __init__(self, *, flat: bool) -> None:
        self.first, self.last, self.flat = rows.Linear(SIZE, SIZE), rows.Linear(SIZE, 1), flat

    def forward(self, x: Any) -> Any:
        y = self.last(functional.tanh(self.first(x)))
        return y.reshape(-1) if self.flat else y


class Pair(rows.Module):
    def __init__(self, *, flat: bool = False) -> None:
        self.maker, self.critic = rows.Linear(SIZE, SIZE), Critic(flat=flat)

    def forward(self) -> Any:
        raise NotImplementedError


def train(folder: Path, model: Pair, *, swapped: bool = False, term: float = 0.0, rate: float = 0.1) -> None:
    """Train the critic twice in each step, on three batches that it is given in either order, and then the maker."""
    rng = np.random.default_rng(3)
    optimizers = rows.SGD(model.critic.parameters(), rate), rows.SGD(model.maker.parameters(), 0.1)
    with padiff.record(model, folder, optimizer=optimizers) as recorder:
        for _ in range(2):
            real, *noise = (rng.standard_normal((5, SIZE)).astype(np.float32) for _ in range(4))
            for z in noise[:2]:
                fake = model.maker(rows.Tensor(z))
                given = {"fake": fake.data, "mixed": (fake.data + real) / 2, "real": real}
                order = sorted(given, reverse=swapped)
                judged = {name: model.critic(rows.Tensor(given[name].copy())) for name in order}
                loss = (judged["fake"] * judged["fake"]).mean() - judged["real"].mean() + judged["mixed"].mean()
                for weight in (model.critic.first.weight, model.critic.last.weight) if term else ():
                    loss = loss + (weight * weight * weight * weight).sum() * np.float32(term)
                optimizers[0].clear()
                loss.backward()
                optimizers[0].step()
            if swapped:  # the critic is frozen then
                for parameter in model.critic.parameters():
                    parameter.requires_grad = False
            loss = -model.critic(model.maker(rows.Tensor(noise[2]))).mean()
            optimizers[1].clear()
            loss.backward()
            optimizers[1].step()
            for parameter in model.critic.parameters():
                parameter.requires_grad = True
            recorder.step(float(loss.data))


@pytest.mark.parametrize(
    ("fault", "place"),
    [
        ({}, None),
        ({"term": 0.1}, (Phase.BACKWARD, "gradients")),  # past all calls, in front of the first step
        ({"rate": 0.2}, (Phase.UPDATE, "updates")),  # the loss follows from it, which is made of calls behind
    ],
)
def test_a_batch_may_be_given_several_times_between_steps(tmp_path: Path, fault: Any, place: Any) -> None:
    """Of two calls with one input that was taken for the other's which is nearer in number."""
    np.random.seed(0)
    models = Pair(), Pair(flat=True)
    padiff.transfer(*models)
    train(tmp_path / "a", models[0])
    train(tmp_path / "b", models[1], swapped=True, **fault)
    sources = padiff.compare(tmp_path / "a", tmp_path / "b").sources
    found = [(one.step, one.candidate.path, one.phase, one.what.kind) for one in sources]
    assert found == ([] if place is None else [(0, "critic", *place)])
