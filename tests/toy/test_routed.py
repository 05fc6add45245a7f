"""Send each token to an expert of its own: behind a fault tokens go to others, and experts are given other sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

TOKENS = np.random.default_rng(0).standard_normal((16, 4)).astype(np.float32)
_EXPERTS = 3


def routed(base: Any, linear: Any, listed: Any, fault: str = "") -> Any:
    """Return three blocks that each send a token to the expert of its largest score, with a residual."""

    class Expert(base):
        def __init__(self) -> None:
            self.up, self.down = linear(4, 6), linear(6, 4)

        def forward(self, x: Any) -> Any:
            y = self.up(x)
            y = y if fault == "activation" else F.gelu(y)
            return self.down(y * (0.5 if fault == "scale" else 1.0))

    class Block(base):
        def __init__(self) -> None:
            self.gate, self.experts = linear(4, _EXPERTS), listed(*(Expert() for _ in range(_EXPERTS)))

        def forward(self, x: Any) -> Any:
            share = F.softmax(self.gate(x))
            chosen = (share.data if fault != "least" else -share.data).argmax(-1)
            for number, expert in enumerate(self.experts):
                rows = np.eye(len(chosen), dtype=np.float32)[chosen == number]
                if len(rows):
                    picked = type(x)(rows)
                    x = x + type(x)(rows.T.copy()) @ (expert(picked @ x) * (picked @ share[:, number : number + 1]))
            return x

    class Model(base):
        def __init__(self) -> None:
            self.embed, self.blocks = linear(4, 4), listed(*(Block() for _ in range(3)))
            self.head = linear(4, 2)

        def forward(self, x: Any) -> Any:
            x = self.embed(x)
            for block in self.blocks:
                x = block(x)
            return self.head(x)

    return Model()


def candidate(fault: str) -> Any:
    return routed(columns.Layer, columns.Dense, columns.Layers, fault)


def compared(fault: str, **asked: Any) -> Any:
    return padiff.diff(routed(rows.Module, rows.Linear, rows.ModuleList), candidate(fault), TOKENS, **asked)


def test_experts_that_are_given_what_the_reference_gives_them_are_aligned() -> None:
    for asked in ({}, {"operations": True}, {"phase": "forward"}):
        report = compared("", **asked)
        assert report.aligned, str(report)


@pytest.mark.parametrize(("fault", "cause"), [("activation", "gelu(_)"), ("scale", "mul(_, 0.5)")], ids=str)
def test_a_fault_of_experts_is_one_source_in_all_blocks(fault: str, cause: str) -> None:
    """Behind the first block's, experts were given other tokens, or none: blocks were further sources."""
    report = compared(fault)
    assert str(report).startswith("not aligned: 1 source in 8 places"), str(report)
    places = {f"blocks.{block}.experts.{expert}" for block in range(3) for expert in range(_EXPERTS)}
    places -= {"blocks.0.experts.0"}  # no token goes there in the reference either
    assert {source.candidate.path for source in report.sources} == places, str(report)
    assert all(cause in str(source.cause) for source in report.sources), str(report)


def test_a_token_that_goes_to_another_expert_is_the_fault_of_each_block() -> None:
    """The diff raised a ForwardError: experts were fed other tokens than the code around had chosen."""
    report = compared("least")
    assert {source.candidate.path for source in report.sources} == {f"blocks.{one}" for one in range(3)}, str(report)


def test_a_worker_is_led_as_well() -> None:
    """What is fed to its calls crosses to it, and the calls that it then does come back."""
    ours = routed(rows.Module, rows.Linear, rows.ModuleList)
    here = padiff.diff(ours, candidate("scale"), TOKENS)
    with padiff.remote("tests.toy.test_routed:candidate", args=("scale",)) as theirs:
        there = padiff.diff(ours, theirs, TOKENS)
    assert str(there).startswith("not aligned: 1 source in "), str(there)
    assert [(one.candidate.path, one.cause) for one in there.sources] == [
        (one.candidate.path, one.cause) for one in here.sources
    ]


def test_an_output_of_another_size_is_no_pass_where_leading_alone_puts_it_right() -> None:
    """Rounding decides which rows are kept: no call is wrong, and the models give other sizes. It was aligned."""

    def kept(base: Any, linear: Any, share: float, least: float) -> Any:
        class Score(base):
            def __init__(self) -> None:
                self.layer = linear(4, 1)

            def forward(self, x: Any) -> Any:
                return self.layer(x) * share * (1.0 / share)

        class Model(base):
            def __init__(self) -> None:
                self.score, self.head = Score(), linear(4, 2)

            def forward(self, x: Any) -> Any:
                rows = np.eye(len(x.data), dtype=np.float32)[self.score(x).data[:, 0] > least]
                return self.head(type(x)(rows) @ x)

        return Model()

    first, x = kept(rows.Module, rows.Linear, 1.0, 0.0), rows.Tensor(TOKENS)
    plain = first.score.layer(x)
    scores = [(plain * share * (1.0 / share)).data[:, 0] for share in (1.0, 0.3)]
    apart = int(np.flatnonzero(scores[0] != scores[1])[0])
    least = float(min(one[apart] for one in scores))
    ours, theirs = kept(rows.Module, rows.Linear, 1.0, least), kept(columns.Layer, columns.Dense, 0.3, least)
    ours.score.layer = first.score.layer
    report = padiff.diff(ours, theirs, TOKENS)
    assert not report.aligned, str(report)
