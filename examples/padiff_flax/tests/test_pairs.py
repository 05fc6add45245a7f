"""Compare Flax models with PyTorch's and Paddle's, either being the reference: clean, and with planted faults."""

from __future__ import annotations

import linecache
from collections.abc import Collection
from types import ModuleType
from typing import Any

import attrs
import numpy as np
import pytest

import padiff

from . import twins_flax, twins_paddle, twins_torch

TWINS: dict[str, ModuleType] = {"torch": twins_torch, "paddle": twins_paddle, "flax": twins_flax}
PAIRS = [("torch", "flax"), ("flax", "torch"), ("paddle", "flax"), ("flax", "paddle")]
BOTH_WAYS = pytest.mark.parametrize(
    ("reference", "candidate"), [PAIRS[0], PAIRS[3]], ids=("-".join(PAIRS[0]), "-".join(PAIRS[3]))
)
"""Flax as the candidate of one framework, and as the reference of the other."""


def inputs(name: str, framework: str, seed: int = 0) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    if name == "encoder":
        return {"tokens": random.integers(0, 11, (2, 6))}
    image = random.standard_normal((2, 3, 16, 16), dtype=np.float32)
    return {"image": np.ascontiguousarray(image.transpose(0, 2, 3, 1)) if framework == "flax" else image}


def compare(
    name: str, reference: str, candidate: str, faults: Collection[str] = (), *, train: bool = False, seed: int = 0
) -> padiff.Report:
    return padiff.diff(
        TWINS[reference].build(name, (), seed, train),
        TWINS[candidate].build(name, faults, seed + 1, train),
        inputs(name, reference, seed),
        candidate_inputs=inputs(name, candidate, seed),
    )


@pytest.mark.parametrize(
    ("name", "train", "reference", "candidate"),
    [
        pytest.param(name, train, *PAIRS[pair], id=f"{name}-{'train' if train else 'eval'}-{'-'.join(PAIRS[pair])}")
        for name, train, pair in (
            ("encoder", False, 3),
            ("convnet", False, 2),
            ("convnet", True, 0),
        )
    ],
)
def test_twins_are_aligned(name: str, reference: str, candidate: str, train: bool) -> None:
    report = compare(name, reference, candidate, train=train)
    assert report.aligned, report
    assert report.transfer is not None
    assert report.transfer.verified == report.transfer.copied > 20
    assert "unmatched" not in report.counts, report


@pytest.mark.parametrize(("name", "seed"), [("encoder", 1), ("convnet", 2)])
def test_no_seed_raises_an_alarm(name: str, seed: int) -> None:
    report = compare(name, "torch", "flax", train=name == "convnet", seed=seed)
    assert report.aligned, report


@attrs.frozen
class Fault:
    """Say where a fault must be named, and on which line of the candidate.

    Paths are those of the two other frameworks; Flax's Sequential keeps its layers in a list of that name.
    """

    name: str
    twins: str
    path: str
    line: str
    between: tuple[str, str] | None = None
    cause: str = ""
    phase: padiff.Phase = padiff.Phase.FORWARD
    train: bool = False
    candidates: Collection[str] = ("torch", "paddle", "flax")

    def place(self, candidate: str) -> str:
        return self.path.replace("body.", "body.layers.") if candidate == "flax" else self.path


FAULTS = [
    Fault("eps", "encoder", "blocks.1.norm1", "self.norm1(x)", cause="eps"),
    Fault("gelu", "encoder", "blocks.1", "self.down(wide)", ("up", "down")),
    Fault("residual", "encoder", "blocks.1", "self.norm2(x)", ("attention", "norm2")),
    Fault("scale", "encoder", "blocks.1.attention", "self.out(merged)", ("value", "out")),
    Fault("detached", "encoder", "blocks.1", "(self, x: Any) -> Any:", phase=padiff.Phase.BACKWARD),
    Fault("padding", "convnet", "body.1.conv1", "self.conv1(x)", cause="padding_mode"),
    Fault(
        "momentum", "convnet", "body.1.norm1", "self.norm1(", cause="momentum", phase=padiff.Phase.BUFFER, train=True
    ),
    Fault("relu", "convnet", "body.1", "self.norm2(", ("norm2", "end")),
    Fault("same", "convnet", "stem", "self.stem(image)", cause="padding", candidates=("flax",)),
]


def _spread(pairs: list[tuple[str, str]], index: int) -> list[tuple[str, str]]:
    """Return one of these pairs, for the next fault the next one: each pair sees some, each fault is seen once."""
    return [pairs[index % len(pairs)]]


@pytest.mark.parametrize(
    ("fault", "reference", "candidate"),
    [
        pytest.param(fault, *pair, id=f"{fault.name}-{'-'.join(pair)}")
        for index, fault in enumerate(FAULTS)
        for pair in _spread([pair for pair in PAIRS if pair[1] in fault.candidates], index)
    ],
)
def test_a_fault_is_named_at_its_place(fault: Fault, reference: str, candidate: str) -> None:
    report = compare(fault.twins, reference, candidate, [fault.name], train=fault.train)
    assert {(one.candidate.path, one.phase) for one in report.sources} == {(fault.place(candidate), fault.phase)}, (
        report
    )
    source = next(one for one in report.sources if fault.between in (None, one.between))
    assert fault.cause in (source.cause or "")
    file, _, line = str(source.candidate.location).rpartition(":")
    assert file == TWINS[candidate].__file__
    assert fault.line in linecache.getline(file, int(line)), f"{file}:{line}"


@BOTH_WAYS
def test_several_faults_are_all_named(reference: str, candidate: str) -> None:
    names = ["eps", "gelu", "residual", "scale"]
    report = compare("encoder", reference, candidate, names)
    expected = {fault.place(candidate) for fault in FAULTS if fault.name in names}
    assert {source.candidate.path for source in report.sources} == expected, report


@BOTH_WAYS
def test_a_square_weight_that_was_copied_transposed_is_named(reference: str, candidate: str) -> None:
    ours, theirs = (TWINS[name].build("encoder", (), seed, False) for seed, name in enumerate((reference, candidate)))
    given = inputs("encoder", "torch")
    assert padiff.diff(ours, theirs, given).aligned
    out = theirs.blocks[0].attention.out
    if candidate == "flax":
        out.kernel[...] = out.kernel[...].T
    else:
        value = out.weight.detach().numpy().T.copy()
        TWINS[candidate].set_value(out.weight, value)
    report = padiff.diff(ours, theirs, given, transfer=False)
    assert [(s.candidate.path, s.phase) for s in report.sources] == [
        ("blocks.0.attention.out", padiff.Phase.PARAMETER)
    ], report


def test_a_model_in_a_process_of_its_own_is_compared_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")  # there too
    given = {"candidate_inputs": inputs("convnet", "flax")}
    reference = twins_torch.build("convnet", (), 0, False)
    there = padiff.remote(f"{twins_flax.__file__}:build", args=("convnet", ["same"], 1, False), timeout=300)
    report = padiff.diff(reference, there, inputs("convnet", "torch"), **given)
    assert [source.candidate.path for source in report.sources] == ["stem"], report
