"""Compare recorded scripts that step several optimizers in turns, several times in a step, in an order of their own."""

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
    """A maker, a critic of what it makes, an average of that, and a weight that the script itself uses."""

    def __init__(self, *, flat: bool = False) -> None:
        self.maker, self.critic, self.target = rows.Linear(SIZE, SIZE), Critic(flat=flat), Critic(flat=flat)
        self.weight = rows.parameter(1)
        for ours, theirs in zip(self.critic.parameters(), self.target.parameters(), strict=True):
            theirs.data[...] = ours.data * 2

    def forward(self) -> Any:
        raise NotImplementedError


def train(
    folder: Path,
    model: Pair,
    *,
    swapped: bool = False,
    term: float = 0.0,
    rate: float = 0.1,
    rates: tuple[float, float] = (0.1, 0.2),
    turns: int = 2,
    attached: bool = False,
    cleared: bool = True,
    clipped: bool = False,
    goal: float = 1.0,
    extra: bool = False,
    part: bool = False,
) -> None:
    """Train the critic in turns, on three batches that it is given in either order, then the maker, and the weight.

    The maker's ``rates`` are those of weight and bias. It gets gradients of the critic's loss, which are cleared, where
    what it makes is ``attached``. The critic's may be ``cleared`` right behind its steps alone, and
    ``part`` of it trained.
    """
    rng = np.random.default_rng(3)
    trained = model.critic.first if part else model.critic
    optimizers = [rows.SGD(trained.parameters(), rate), rows.SGD([model.weight], 0.1)]
    makers = [rows.SGD([one], own) for one, own in zip(model.maker.parameters(), rates, strict=True)]
    for parameter in model.target.parameters():
        parameter.requires_grad = False
    with padiff.record(model, folder, optimizer=[*optimizers, *makers]) as recorder:
        for _ in range(2):
            real, *noise = (rng.standard_normal((5, SIZE)).astype(np.float32) for _ in range(4))
            wanted = model.target(rows.Tensor(real.copy())).mean()
            for z in noise[:turns]:
                fake = model.maker(rows.Tensor(z))
                given = {"fake": fake.data, "mixed": (fake.data + real) / 2, "real": real}
                tensors = {name: rows.Tensor(one.copy()) for name, one in given.items()}
                tensors["fake"] = fake if attached else tensors["fake"]
                judged = {name: model.critic(tensors[name]) for name in sorted(given, reverse=swapped)}
                loss = (judged["fake"] * judged["fake"]).mean() - judged["real"].mean() + judged["mixed"].mean()
                for weight in (model.critic.first.weight, model.critic.last.weight) if term else ():
                    loss = loss + (weight * weight * weight * weight).sum() * np.float32(term)
                if cleared:
                    optimizers[0].clear()
                (loss + loss * wanted.data).backward()
                optimizers[0].step()
                if not cleared:
                    optimizers[0].clear()
            for parameter in model.critic.parameters():
                parameter.requires_grad = not swapped  # a script may freeze the critic by now
            judge = model.target if extra else model.critic
            loss = -judge(model.maker(rows.Tensor(noise[2]))).mean()
            for optimizer in makers:
                optimizer.clear()
            loss.backward()
            for one in model.maker.parameters() if clipped else ():
                one.grad = one.grad * np.float32(0.5)
            for optimizer in makers:
                optimizer.step()
            for parameter in model.critic.parameters():
                parameter.requires_grad = True
            optimizers[1].clear()
            ((model.weight * loss.data - np.float32(goal)) * model.weight).sum().backward()
            optimizers[1].step()
            recorder.step(float(loss.data))


def compared(folder: Path, ours: Any, theirs: Any) -> padiff.Report:
    np.random.seed(0)
    models = Pair(), Pair(flat=True)
    padiff.transfer(*models)
    for model, name, how in zip(models, "ab", (ours, theirs), strict=True):
        train(folder / name, model, **how)
    return padiff.compare(folder / "a", folder / "b")


ONCE, SWAPPED = {"turns": 1}, {"swapped": True}
ATTACHED = {**ONCE, "attached": True}
STEP = Phase.UPDATE, "updates"


@pytest.mark.parametrize(
    ("ours", "theirs", "place", "cause"),
    [
        ({}, SWAPPED, None, None),  # of two calls with one input that nearer in number was taken for the other's
        ({}, {**SWAPPED, "term": 0.1}, (0, "critic", Phase.BACKWARD, "gradients"), None),  # past all calls
        ({}, {**SWAPPED, "rate": 0.2}, (0, "critic", *STEP), "lr: 0.1 in the reference, 0.2"),
        ({}, {**SWAPPED, "goal": 2.0}, (0, "", Phase.BACKWARD, "parameter_gradient"), None),
        (ONCE, ATTACHED, None, None),  # what is cleared is none of what the optimizer steps with
        (ONCE, {**ATTACHED, "rates": (0.2, 0.4)}, (0, "maker", *STEP), "lr: 0.1, 0.2 in the reference, 0.2, 0.4"),
        (ATTACHED, {**ATTACHED, "clipped": True}, (0, "maker", *STEP), "as they arrived in the reference, 0.5 to 1"),
        (ONCE, {**ONCE, "cleared": False}, (1, "critic", *STEP), "which were not cleared) in the candidate"),
        (ONCE, {**ONCE, "part": True}, (0, "critic.last", *STEP), "does not step what the reference's steps"),
        ({}, {"extra": True}, (0, "critic", Phase.BACKWARD, "output"), "'critic' is called 7 times in the reference"),
    ],
)
def test_optimizers_may_step_in_turns(tmp_path: Path, ours: Any, theirs: Any, place: Any, cause: str | None) -> None:
    report = compared(tmp_path, ours, theirs)
    found = [(one.step, one.candidate.path, one.phase, one.what.kind) for one in report.sources]
    assert found == ([] if place is None else [place]), str(report)
    assert all((cause or "None") in str(one.cause) for one in report.sources), str(report)
    unused = {note.data["side"] for note in report.notes if note.kind == "unused_gradients"}
    assert unused == ({"candidate"} if theirs is ATTACHED else {"reference"} if theirs is SWAPPED else unused)
