"""Align and judge what a folder holds, without any framework."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from padiff.alignment import Alignment, ModulePair, Pair, align
from padiff.forcing import Bench, Check, Forced, Replayed, Spot
from padiff.forcing._checks import Observed
from padiff.forcing._run import InputCheck, StateCheck
from padiff.judging import Judge
from padiff.judging._forced._state import of_state
from padiff.kinds import Part
from padiff.numerics import Difference, SmallPart
from padiff.parameters import Held, HeldUnit, Link, UnitMatch
from padiff.report import Measurement

from .answers import Answers, OfflineSide, Refused
from .archive import read_records

RECORDS = (
    Alignment, Answers, Check, Difference, Forced, Held, HeldUnit, InputCheck, Link, Measurement, ModulePair, Observed,
    Pair, Part, Refused, Replayed, SmallPart, Spot, StateCheck, UnitMatch,
)  # fmt: skip


def judged(judge: Judge) -> list[Any]:
    """Return what a judge finds, as plain data."""
    forward = judge.forward()
    backward = judge.backward(forward)
    return json.loads(
        json.dumps(
            [
                [s.pair.key, s.phase.value, str(s.what), s.verdict.value, str(s.ruling.figures), str(s.ruling.evidence)]
                for s in [*forward, *backward, *of_state(judge, [*forward, *backward])]
            ]
        )
    )


def again(folder: Path) -> list[Any]:
    """Align and judge what a folder holds."""
    kept = read_records(folder, *RECORDS)
    traces, alignment = kept["traces"], kept["alignment"]
    found = align(*traces, [match.modules for match in kept["matches"]])
    assert [(p.key, p.reference.key, p.why, p.inputs) for p in found.pairs] == [
        (p.key, p.reference.key, p.why, p.inputs) for p in alignment.pairs
    ]
    sides = [OfflineSide(answers) for answers in kept["answers"]]
    bench = Bench(sides[0], sides[1], traces[0], alignment, kept["forced"].own, True, 0)
    return judged(Judge(bench, traces[0], kept["forced"], loss=None))
