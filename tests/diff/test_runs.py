"""A diff runs the reference once, and the candidate freely and forced; once more where its calls refute a guess."""

from __future__ import annotations

from typing import Any

import pytest

import padiff

from .models import DIRECTIONS, Kit, array, assert_clean, kit, network, snapshot

X = (array(6, 8),)
DEFINED_AS_CALLED = ("alpha", "beta", "gamma")
DEFINED_OTHERWISE = ("gamma", "alpha", "beta")


def _reference(kit: Kit, runs: list[int]) -> Any:
    def forward(self: Any, x: Any) -> Any:
        runs.append(1)
        return self.fc3(self.act(self.fc2(self.act(self.fc1(x)))))

    layers = {f"fc{i}": kit.linear(8, 8) for i in (1, 2, 3)}
    return network(kit, forward, name="Reference", act=kit.nn.ReLU(), **layers)


def _candidate(kit: Kit, order: tuple[str, ...], runs: list[int], *, breaks: bool = False) -> Any:
    """Return the same network under other names, its layers defined in an order; ``runs`` gets one item for each."""

    def forward(self: Any, x: Any) -> Any:
        runs.append(1)
        x = self.act(self.beta(self.act(self.alpha(x))))
        if breaks:
            msg = "broken on purpose"
            raise RuntimeError(msg)
        return self.gamma(x)

    return network(kit, forward, name="Port", act=kit.nn.ReLU(), **{name: kit.linear(8, 8) for name in order})


@pytest.mark.parametrize(("ours", "theirs"), DIRECTIONS)
@pytest.mark.parametrize(("order", "expected"), [(DEFINED_AS_CALLED, 2), (DEFINED_OTHERWISE, 3)])
def test_the_candidate_runs_again_only_where_its_calls_refute_the_guess(
    order: tuple[str, ...], expected: int, ours: str, theirs: str
) -> None:
    runs: list[int] = []
    referred: list[int] = []
    report = padiff.diff(_reference(kit(ours), referred), _candidate(kit(theirs), order, runs), X)
    assert_clean(report)
    assert report.transfer is not None
    assert report.transfer.copied == 6
    assert report.output is not None
    assert report.output.rel_l2 < 1e-5
    assert (len(referred), len(runs)) == (1, expected)


@pytest.mark.parametrize(("ours", "theirs"), DIRECTIONS)
def test_nothing_is_guessed_where_nothing_is_copied(ours: str, theirs: str) -> None:
    runs: list[int] = []
    referred: list[int] = []
    framework = kit(theirs)
    port = _candidate(framework, DEFINED_OTHERWISE, runs)
    before = snapshot(framework, port)
    report = padiff.diff(_reference(kit(ours), referred), port, X, transfer=False)
    assert not report.aligned
    assert snapshot(framework, port) == before
    assert (len(referred), len(runs)) == (1, 2)


@pytest.mark.parametrize(("ours", "theirs"), DIRECTIONS)
def test_a_guess_is_taken_back_where_the_candidate_does_not_run(ours: str, theirs: str) -> None:
    framework = kit(theirs)
    port = _candidate(framework, DEFINED_AS_CALLED, [], breaks=True)
    before = snapshot(framework, port)
    with pytest.raises(padiff.ForwardError, match="broken on purpose"):
        padiff.diff(_reference(kit(ours), []), port, X)
    assert snapshot(framework, port) == before
