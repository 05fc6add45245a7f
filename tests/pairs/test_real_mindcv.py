"""Diff torchvision's models against MindCV's: what nobody here wrote, in PyTorch and in MindSpore.

What is equal and what is not was established by hand: weights copied outside padiff, the outputs compared, and where
these part each layer alone. What a comparison of outputs hides is said where it matters.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import mindspore
import pytest

import padiff

from .judging import assert_aligned, describe
from .real import SHALLOW, built, image, shallow

EACH_WAY = pytest.mark.parametrize(
    "frameworks", [("torch", "mindspore"), ("mindspore", "torch")], ids=["torch-mindspore", "mindspore-torch"]
)
Frameworks = tuple[str, str]
Paths = dict[str, list[str]]


def _diff(name: str, frameworks: Frameworks, size: int = 64, *, train: bool = False) -> padiff.Report:
    make = shallow if name in SHALLOW else built
    return padiff.diff(*(make(framework, name, train=train) for framework in frameworks), (image(size),))


def _assert_transferred(report: padiff.Report, but: Collection[str] = ()) -> None:
    """Assert that every parameter was transferred, and verified; ``but`` those of the candidate that cannot be."""
    transfer = report.transfer
    assert transfer is not None
    assert not transfer.unmatched_reference, transfer
    assert not transfer.unmatched_candidate, transfer
    assert set(transfer.unverified) == set(but), transfer
    assert transfer.copied == transfer.verified + len(but), transfer


def _assert_exactly(report: padiff.Report, paths: Paths, frameworks: Frameworks, words: dict[str, list[str]]) -> None:
    """Assert that these modules are the sources, all of them and in this order, each with the values of both sides."""
    told = describe(report)
    assert not report.aligned, told
    found = [(source.reference.path, source.candidate.path) for source in report.sources]
    assert found == list(zip(*(paths[framework] for framework in frameworks), strict=True)), told
    for index, source in enumerate(report.sources):
        assert source.phase == "forward", told
        ours, theirs = (words[framework][index % len(words[framework])] for framework in frameworks)
        ours, theirs = f": {ours} in the reference", f", {theirs} in the candidate"
        assert source.cause, told
        assert source.cause.endswith(ours + theirs), told
        assert source.reference.location, told
        assert source.candidate.location, told


@EACH_WAY
@pytest.mark.parametrize(("name", "train"), [("mobilenet_v2", False), ("densenet", False)])
def test_models_are_aligned(name: str, train: bool, frameworks: Frameworks) -> None:
    report = _diff(name, frameworks, train=train)
    assert_aligned(report)
    _assert_transferred(report)


@EACH_WAY
def test_resnet_parts_at_the_pooling_of_its_stem(frameworks: Frameworks) -> None:
    report = _diff("resnet", frameworks, train=True)
    paths = {"torch": ["maxpool"], "mindspore": ["max_pool"]}
    words = {"torch": ["((1, 1), (1, 1)) (padding=1)"], "mindspore": ["((0, 1), (0, 1)) (pad_mode='same')"]}
    _assert_exactly(report, paths, frameworks, words)
    assert "padding" in (report.sources[0].cause or "")
    _assert_transferred(report)


@EACH_WAY
def test_efficientnet_is_aligned_at_an_odd_size(frameworks: Frameworks) -> None:
    # Of 32 n + 1 pixels every convolution of stride 2 gets an odd number, where pad_mode="same" pads both ends alike.
    report = _diff("efficientnet", frameworks, 65)
    assert_aligned(report)
    _assert_transferred(report)


STRIDED = {
    "torch": ["features.0.0", *(f"features.{i}.0.block.1.0" for i in (2, 3, 4, 6))],
    "mindspore": ["features.0", *(f"features.{i}.0.block.3" for i in (4, 5, 6, 8))],
}
"""EfficientNet-B0's convolutions of stride 2, of kernels 3, 3, 5, 3 and 5."""


@EACH_WAY
def test_efficientnet_parts_at_its_strided_convolutions_at_an_even_size(frameworks: Frameworks) -> None:
    # MindCV's pad less in front: the outputs of both stems are 1.4 apart, of relative L2. So are those of new models,
    # but of a size of 1e-13; with biases and running means of 0.1 in their norms they are 2e-5 apart.
    report = _diff("efficientnet", frameworks)
    sizes = (1, 1, 2, 1, 2)
    words = {
        "torch": [f"(({n}, {n}), ({n}, {n})) (padding=({n}, {n}))" for n in sizes],
        "mindspore": [f"(({n - 1}, {n}), ({n - 1}, {n})) (pad_mode='same')" for n in sizes],
    }
    _assert_exactly(report, STRIDED, frameworks, words)
    _assert_transferred(report, {f"{path}.weight" for path in STRIDED[frameworks[1]]})


GELU = mindspore.nn.GELU


def _convnext(framework: str, *, train: bool, erf: bool, **settings: Any) -> Any:
    """Return a ConvNeXt without stochastic depth, as MindCV's is by default; with erf in MindCV's GELUs if asked."""
    if framework == "torch":
        settings = {"stochastic_depth_prob": 0.0, **settings}
    model = shallow(framework, "convnext", train=train, **settings)
    if framework == "mindspore" and erf:
        for cell in [cell for _, cell in model.cells_and_names() if isinstance(getattr(cell, "act", None), GELU)]:
            cell.act = GELU(approximate=False)
    return model


BLOCKS = [f"{2 * stage + 1}.{block}" for stage, depth in enumerate(SHALLOW["convnext"]) for block in range(depth)]
GELUS = {
    "torch": [f"features.{block}.block.4" for block in BLOCKS],
    "mindspore": [f"feature.{block}.act" for block in BLOCKS],
}


@EACH_WAY
def test_convnext_is_aligned_where_its_gelus_are_the_same(frameworks: Frameworks) -> None:
    report = padiff.diff(*(_convnext(name, train=False, erf=True) for name in frameworks), (image(),))
    assert_aligned(report)
    _assert_transferred(report)


@EACH_WAY
def test_convnext_as_built_parts_at_every_gelu(frameworks: Frameworks) -> None:
    # In a whole ConvNeXt-T their outputs are 4e-5 to 2e-4 apart, each framework's 4e-8 from its own formula, and the
    # layer scales of 1e-6 hide it: 9e-7 is left, as with equal GELUs; with layer scales of 1 it is 2e-4 (and 1e-6).
    report = padiff.diff(*(_convnext(name, train=True, erf=False) for name in frameworks), (image(),))
    words = {"torch": ["'none'"], "mindspore": ["'tanh' (approximate=True)"]}
    _assert_exactly(report, GELUS, frameworks, words)
    assert all(source.cause and source.cause.startswith("approximate") for source in report.sources)
    _assert_transferred(report)


def test_stochastic_depth_that_only_torchvision_has_is_named_at_every_block() -> None:
    # By default torchvision drops up to a tenth of the blocks in training. Here it dropped none or few, and behind
    # layer scales of 1e-6 only the gradients show it: by 1 / (1 - p) in what is kept.
    reference = _convnext("torch", train=True, erf=True, stochastic_depth_prob=0.1)
    report = padiff.diff(reference, _convnext("mindspore", train=True, erf=True), (image(32),))
    told = describe(report)
    rates = {block: 0.1 * index / (len(BLOCKS) - 1) for index, block in enumerate(BLOCKS)}
    expected = {
        (
            f"features.{block}",
            f"feature.{block}",
        ): f"'features.{block}.stochastic_depth' (StochasticDepth, p={rate:.6g})"
        for block, rate in rates.items()
        if rate
    }
    assert {(found.reference.path, found.candidate.path) for found in report.sources} == expected.keys(), told
    for found in report.sources:
        module = expected[str(found.reference.path), str(found.candidate.path)]
        assert found.cause == f"dropout: {module} in the reference, nothing like it in the candidate", told
    _assert_transferred(report)
