"""Name a module without parameters that gives another shape than the one of its name in the reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, functional, rows

IMAGES = np.random.default_rng(0).standard_normal((2, 3, 8, 8)).astype(np.float32)


def pooling(base: Any, does: str) -> Any:
    """Return a module of no kind that pools, or flattens, its images."""

    class Pool(base):
        def forward(self, x: Any) -> Any:
            if does == "whole":
                return x.reshape(2, -1)
            return x.reshape(2, 4, -1) if does == "planes" else functional.avg_pool2d(x, int(does))

    return Pool()


def net(side: Any, does: str, *, end: str = "", factor: float = 1.0) -> Any:
    """Return a model with the module, behind which the code around brings the axes to one shape, or not."""
    conv = side.Conv2d if side is rows else side.Conv

    class Net(side.Module if side is rows else side.Layer):
        def __init__(self) -> None:
            self.conv, self.pool = conv(3, 4, 3, 1, 1), pooling(side.Module if side is rows else side.Layer, does)

        def forward(self, x: Any) -> Any:
            x = x if side is rows else x.transpose(0, 2, 3, 1)
            x = functional.relu(self.conv(x))
            x = self.pool(x if side is rows else x.transpose(0, 3, 1, 2)) * np.float32(factor)
            return x.reshape(2, -1) if end == "flat" else x.reshape(2, 4, -1).mean(2) if end == "mean" else x

    return Net()


def recorded(folder: Path, models: tuple[Any, Any]) -> padiff.Report:
    padiff.transfer(*models, IMAGES)
    for model, side, name in zip(models, (rows, columns), "ab", strict=True):
        with padiff.record(model, folder / name) as recorder:
            out = model(side.Tensor(IMAGES.copy()))
            (out * out).mean().backward()
            recorder.step()
    return padiff.compare(folder / "a", folder / "b")


@pytest.mark.parametrize("live", [True, False])
@pytest.mark.parametrize(("does", "other"), [("2", "4"), ("whole", "planes"), ("4", "planes")])
def test_it_is_named_on_both_sides_with_the_shapes(tmp_path: Path, does: str, other: str, live: bool) -> None:
    models = net(rows, does), net(columns, other)
    report = padiff.diff(*models, IMAGES) if live else recorded(tmp_path, models)
    (source,) = report.sources
    assert (source.reference.path, source.candidate.path) == ("pool", "pool"), str(report)
    text = str(report)
    assert "output has another shape or type" in text
    assert "the reference returns a tensor float32[2, " in text
    assert "LayerMap" not in text
    assert "only the" not in text, "both sides call it"


@pytest.mark.parametrize("live", [True, False])
def test_a_shape_that_the_code_around_means_is_right(tmp_path: Path, live: bool) -> None:
    models = net(rows, "whole", end="flat"), net(columns, "planes", end="flat")
    report = padiff.diff(*models, IMAGES) if live else recorded(tmp_path / "right", models)
    assert report.aligned, str(report)
    models = net(rows, "whole", end="flat"), net(columns, "planes", end="flat", factor=1.1)
    report = padiff.diff(*models, IMAGES) if live else recorded(tmp_path / "wrong", models)
    (source,) = report.sources
    assert source.candidate.path == "", str(report)
