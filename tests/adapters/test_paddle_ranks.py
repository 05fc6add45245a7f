"""Compare jobs of ``paddle.distributed`` with one rank, and with torch: fleet's split layers, `paddle.DataParallel`."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import padiff

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("jobs")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = min(free.getsockname()[1], 65000)
    done = subprocess.run(
        [sys.executable, str(HERE / "paddle_jobs.py"), str(folder), str(port)],
        capture_output=True,
        text=True,
        timeout=600,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return folder


@pytest.mark.parametrize("job", ["fleet", "parallel"])
def test_a_job_is_the_model_that_it_runs(jobs: Path, job: str) -> None:
    for pair in (("one", job), (job, "one")):
        report = padiff.compare(*(jobs / name for name in pair))
        assert report.aligned, report
        assert not report.coverage.missing, report
        assert report.recorded.steps == (0, 1)


@pytest.mark.parametrize(
    ("job", "kind", "path", "cause", "ranks"),
    [
        ("fleet-no-all-reduce", "output", "down", "missing_all_reduce", [0, 1]),
        ("parallel-stale", "parameter", "norm", "out_of_step", [1]),
    ],
)
def test_a_fault_is_named_with_its_ranks(jobs: Path, job: str, kind: str, path: str, cause: str, ranks: Any) -> None:
    report = padiff.compare(jobs / "one", jobs / job)
    (source,) = report.sources
    assert (source.what.kind, source.candidate.path, source.cause.name) == (kind, path, cause), report
    assert source.cause.parameters["ranks"] == ranks


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(16, 8)
        self.up, self.down = torch.nn.Linear(8, 12), torch.nn.Linear(12, 8)
        self.head = torch.nn.Linear(8, 16, bias=False)
        self.norm = torch.nn.LayerNorm(8)

    def forward(self, tokens: Any) -> Any:
        x = self.embedding(tokens)
        x = self.norm(x + self.down(torch.nn.functional.gelu(self.up(x))))
        return self.head(x)


@pytest.mark.parametrize("job", ["fleet", "parallel"])
def test_one_rank_of_torch_is_what_a_job_of_paddle_is(jobs: Path, job: str, tmp_path: Path) -> None:
    model = Net()
    padiff.transfer(jobs / "one", model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with padiff.record(model, tmp_path / "torch") as recorder:
        for step in range(2):
            tokens, labels = map(torch.tensor, np.random.default_rng(step).integers(0, 16, (2, 4, 6)))
            loss = torch.nn.functional.cross_entropy(model(tokens).reshape(-1, 16), labels.reshape(-1))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            recorder.step(loss)
    report = padiff.compare(tmp_path / "torch", jobs / job)
    assert report.aligned, report
    assert not report.coverage.missing, report


def test_a_model_in_a_wrapper_is_the_model_in_a_plain_diff() -> None:
    import paddle

    def built(epsilon: float) -> Any:
        paddle.seed(0)
        return paddle.nn.Sequential(paddle.nn.Linear(4, 4), paddle.nn.LayerNorm(4, epsilon=epsilon))

    x = (np.random.default_rng(0).standard_normal((3, 4), dtype="float32"),)
    assert padiff.diff(built(1e-5), paddle.DataParallel(built(1e-5)), x).aligned
    report = padiff.diff(built(1e-5), paddle.DataParallel(built(1e-3)), x)
    assert [source.candidate.path for source in report.sources] == ["1"], report
