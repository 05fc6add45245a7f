"""Align and judge what a folder holds, without any framework."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from padiff.alignment import Alignment, ModulePair, Pair, align
from padiff.forcing import Answers, Bench, Check, Forced, OfflineSide, Refused, Replayed, Spot
from padiff.forcing._checks import Observed
from padiff.forcing._run import InputCheck
from padiff.judging import Judge
from padiff.numerics import Difference
from padiff.report import Measurement
from padiff.trace import read_records

RECORDS = (
    Alignment, Answers, Check, Difference, Forced, InputCheck, Measurement, ModulePair, Observed, Pair, Refused,
    Replayed, Spot,
)  # fmt: skip


def judged(judge: Judge) -> list[Any]:
    """Return what a judge finds, as plain data."""
    forward = judge.forward()
    return json.loads(
        json.dumps(
            [
                [s.pair.key, s.phase.value, str(s.what), s.verdict.value, str(s.ruling.figures), str(s.ruling.evidence)]
                for s in [*forward, *judge.backward(forward)]
            ]
        )
    )


def again(folder: Path) -> list[Any]:
    """Align and judge what a folder holds."""
    kept = read_records(folder, *RECORDS)
    traces, alignment = kept["traces"], kept["alignment"]
    found = align(*traces, kept["modules"])
    assert [(p.key, p.reference.key, p.why, p.inputs) for p in found.pairs] == [
        (p.key, p.reference.key, p.why, p.inputs) for p in alignment.pairs
    ]
    sides = [OfflineSide(answers) for answers in kept["answers"]]
    bench = Bench(sides[0], sides[1], traces[0], alignment, kept["forced"].own, True, 0)
    return judged(Judge(bench, traces[0], kept["forced"], loss=False))
