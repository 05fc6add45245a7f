"""Run the documents' samples as a user would: as scripts, in a folder of their own."""

from __future__ import annotations

import contextlib
import io
import runpy
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import attrs

import padiff

__all__ = ["SAMPLES", "Ran", "fitted", "run"]

SAMPLES = Path(__file__).parent / "samples"

_PRELUDE = """\
from functools import partial

import paddle
import torch

from padiff import *
"""
"""What the shorter samples take for granted."""

_BODY = """\
    def __init__(self):
        super().__init__()
        self.linear1 = {nn}.Linear(100, 100)
        self.linear2 = {nn}.Linear(100, 10)
    def forward(self, x):
        return self.linear2(self.linear1(x))
"""
_LAYER = "class SimpleLayer(paddle.nn.Layer):\n"
_MODULE = "class SimpleModule(torch.nn.Module):\n"
_PADDLE, _TORCH = _BODY.format(nn="paddle.nn"), _BODY.format(nn="torch.nn")
_TRANSFORMERS = """\
sizes = {"d_model": 16, "nhead": 2, "num_encoder_layers": 1, "num_decoder_layers": 1, "dim_feedforward": 32,
         "dropout": 0.0}
class SimpleLayer(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.transformer = paddle.nn.Transformer(**sizes)
    def forward(self, src, tgt):
        return self.transformer(src, tgt)
class SimpleModule(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.transformer = torch.nn.Transformer(**sizes, batch_first=True)
    def forward(self, src, tgt):
        return self.transformer(src, tgt)
"""
_DATA = """\
inp = {"src": paddle.rand((2, 5, 16)).numpy(), "tgt": paddle.rand((2, 3, 16)).numpy()}
inp = (inp, inp)
"""

_LOOP = 'model = create_model(SimpleLayer(), name="Simple")\n'
_OPTIMIZER = "optimizer = paddle.optimizer.SGD(0.1, parameters=model.model.parameters())\n"

MENDED: dict[str, list[tuple[str, str]]] = {
    "001_backward": [(_LOOP, _LOOP + _OPTIMIZER)],
    "001_dumps": [(_LOOP, _LOOP + _OPTIMIZER)],
    "001_try_dump": [
        ("\t\tmodel.try_dump(per_step=10, dir_path)", "    model.try_dump(per_step=10, dir_path=dir_path)")
    ],
    "001_lists": [
        ("component0， component1", "model.model.linear1, model.model.linear2"),
        ("[component2]", "[model.model.linear2]"),
    ],
    "001_inner_model": [("model.model.XXX", "weight = model.model.linear1.weight")],
    "002_auto_diff": [
        (f"{_LAYER}# your definition\n", _LAYER + _PADDLE),
        (f"{_MODULE}# your definition\n", _MODULE + _TORCH),
        ("{'y':", "{'x':"),
    ],
    "003_case1": [("{'y':", "{'x':")],
    "003_case3": [(f"{_LAYER}    # ...\n", _LAYER + _PADDLE), (f"{_MODULE}    # ...\n", _MODULE + _TORCH)],
}
"""Sample -> what is not as printed: a definition that was left to the reader, or an obvious typing error."""

_SIMPLE = """\
import paddle
class SimpleLayer(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.linear1 = paddle.nn.Linear(8, 8)
        self.linear2 = paddle.nn.Linear(8, 2)
    def forward(self, x):
        return self.linear2(self.linear1(x))
class SimpleLayer0(SimpleLayer):
    pass
class SimpleLayer1(SimpleLayer):
    pass
inputs = paddle.rand((4, 8))
loss_fn = paddle.mean
dir_path = "dumped"
def dataloader():
    return [inputs] * 20
"""
BEFORE = {
    **{f"001_{name}": _SIMPLE for name in ("backward", "try_dump", "dumps", "lists", "layer_map", "inner_model")},
    "002_assign_weight": _LAYER + _PADDLE + _MODULE + _TORCH,
    "003_layer_mapping": _TRANSFORMERS + _DATA,
}
"""Sample -> the definitions that it speaks of and does not show."""


@attrs.frozen
class Ran:
    """Hold what a script did: the results of its calls of auto_diff and assign_weight, and what it printed."""

    results: list[bool]
    printed: str
    names: dict[str, Any]
    lines: list[str]

    def line_of(self, code: str) -> int:
        """Return the number of the one line of the script that holds some code."""
        (found,) = (number for number, line in enumerate(self.lines, 1) if code in line)
        return found


def fitted(name: str) -> str:
    """Return a sample with what it leaves to the reader."""
    text = (SAMPLES / f"{name}.txt").read_text(encoding="utf-8")
    for old, new in MENDED.get(name, ()):
        assert old in text, (name, old)
        text = text.replace(old, new)
    return _PRELUDE + BEFORE.get(name, "") + text


def run(text: str, folder: Path, changes: Iterable[tuple[str, str]] = (), **given: Any) -> Ran:
    """Run a script in a folder; ``changes`` are made to its text before, each to the one place that fits."""
    for old, new in changes:
        assert text.count(old) == 1, (old, text.count(old))
        text = text.replace(old, new)
    file = folder / "script.py"
    file.write_text(text, encoding="utf-8")
    results: list[bool] = []
    originals = {name: getattr(padiff, name) for name in ("auto_diff", "assign_weight")}
    out = io.StringIO()
    try:
        for name, function in originals.items():
            setattr(padiff, name, _recorded(function, results))
        with contextlib.chdir(folder), contextlib.redirect_stdout(out):
            names = runpy.run_path(str(file), init_globals=given, run_name="__main__")
    finally:
        for name, function in originals.items():
            setattr(padiff, name, function)
    return Ran(results, out.getvalue(), names, text.splitlines())


def _recorded(function: Callable[..., bool], results: list[bool]) -> Callable[..., bool]:
    def call(*args: Any, **keywords: Any) -> bool:
        results.append(function(*args, **keywords))
        return results[-1]

    return call
