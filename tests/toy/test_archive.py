"""Write traces and the answers of replays, and align and judge them again in a process without the frameworks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

import padiff
from padiff.alignment import Resolved, align
from padiff.forcing import Bench, LocalSide, force
from padiff.judging import Judge
from padiff.parameters import named_alike, units_of
from padiff.plugins import adapter_for
from padiff.recording import Task
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F
from padiff.trace import ValueStore

from .answers import KeptSide
from .archive import write_records
from .offline import RECORDS, again, judged


class Net(rows.Module):
    def __init__(self) -> None:
        self.first, self.act, self.norm = rows.Linear(6, 8), rows.GELU(), rows.LayerNorm(8)
        self.attention, self.head = rows.Attention(8, 2), rows.Linear(8, 4)

    def forward(self, x: Any) -> Any:
        x = self.norm(self.act(self.first(x)))
        return self.head(x + self.attention(x))


class Port(columns.Layer):
    def __init__(self) -> None:
        self.first, self.norm = columns.Dense(6, 8), columns.LayerNormalization(8)
        self.attention, self.head = columns.SelfAttention(8, 2), columns.Dense(8, 4)

    def forward(self, x: Any) -> Any:
        x = self.norm(F.relu(self.first(x)))
        return self.head(x * 1.5 + self.attention(x))


def numbers() -> Any:
    return np.random.default_rng(0).standard_normal((2, 3, 6), dtype=np.float32)


def kept_in(folder: Path) -> list[Any]:
    """Record and judge a port with two faults, and write all of it to a folder."""
    net, port = Net(), Port()
    padiff.diff(net, port, (numbers(),))  # copies the parameters
    sides = [LocalSide(adapter_for(model).wrap(model)) for model in (net, port)]
    task, store = Task((numbers(),), {}), ValueStore()
    for index, side in enumerate(sides):
        side.prepare(None, None, index=index)
    traces = sides[0].record(task, store), sides[1].record(task, store, values=False)
    units = [units_of(side.about) for side in sides]
    known = named_alike(*units, Resolved())
    assert known is not None
    alignment = align(*traces, [match.modules for match in known.matches])
    forced = force(sides[0], sides[1], task, alignment, traces[0], known.matches)
    keeping = [KeptSide(side) for side in sides]
    bench = Bench(keeping[0], keeping[1], traces[0], alignment, forced.own, True, 0)
    found = judged(Judge(bench, traces[0], forced, loss=None))
    what = {"traces": list(traces), "matches": list(known.matches), "alignment": alignment, "forced": forced}
    write_records({**what, "answers": [one.answers for one in keeping]}, folder, *RECORDS)
    return found


def test_a_process_without_the_framework_finds_the_same(tmp_path: Path) -> None:
    found = kept_in(tmp_path)
    assert {("", "forward"), ("", "backward")} & {(key[0], phase) for key, phase, *_ in found}, found
    assert again(tmp_path) == found
    script = (
        "import json, pathlib, sys; from tests.toy.offline import again\n"
        f"found = again(pathlib.Path({str(tmp_path)!r}))\n"
        "assert not [name for name in sys.modules if name.split('.')[0] in ('torch', 'paddle', 'mindspore', 'jax')]\n"
        "assert 'padiff.testing' not in sys.modules\n"
        "print(json.dumps(found))"
    )
    root = Path(__file__).parents[2]
    env = {**os.environ, "PYTHONPATH": f"{os.environ.get('PYTHONPATH', '')}:{root}"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=env, cwd=root)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == found
