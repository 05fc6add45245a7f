"""Spread a comparison over an executor's workers, and go on where one was killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.errors import InputError, WorkerError
from padiff.judging._recorded import _meter as meter

from .test_recording import Net, batches, train


@pytest.fixture(scope="module")
def runs(tmp_path_factory: Any) -> tuple[Path, Path]:
    """Record two runs, of which the second's norm has another scale."""
    folder = tmp_path_factory.mktemp("runs")
    for name, scale in (("a", 1.0), ("b", 2.0)):
        np.random.seed(0)
        model = Net()
        model.norm.weight.data *= np.float32(scale)
        with padiff.record(model, folder / name) as recorder:
            train(model, batches(2), recorder.step)
    return folder / "a", folder / "b"


class Counting(Executor):
    """An executor that works at once, notes what crosses to it, and dies after some requests."""

    def __init__(self, most: int = 1 << 30) -> None:
        self.most, self.asks = most, []  # type: int, list[Any]

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        if len(self.asks) >= self.most:
            future.set_exception(RuntimeError("the cluster is gone"))
        else:
            self.asks.append(args[0])
            future.set_result(function(*args, **kwargs))
        return future


def told(report: Any) -> Any:
    return report.counts, [(one.step, one.candidate.path, str(one.what), one.figures) for one in report.findings]


@pytest.mark.parametrize("kind", [ThreadPoolExecutor, ProcessPoolExecutor])
def test_an_executor_gives_the_same_report(runs: Any, kind: Any) -> None:
    context = {} if kind is ThreadPoolExecutor else {"mp_context": __import__("multiprocessing").get_context("spawn")}
    with kind(2, **context) as executor:
        assert told(padiff.compare(*runs, executor=executor)) == told(padiff.compare(*runs))


def test_a_cluster_of_processes_gives_the_same_report(runs: Any, tmp_path: Path) -> None:
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, local_directory=str(tmp_path)
        ) as cluster,
        Client(cluster) as client,
        client.get_executor() as executor,
    ):
        assert told(padiff.compare(*runs, executor=executor)) == told(padiff.compare(*runs))


def test_what_crosses_is_small_and_plain(runs: Any) -> None:
    import pickle

    executor = Counting()
    padiff.compare(*runs, executor=executor)
    for asks in executor.asks:
        assert len(pickle.dumps(asks)) < 2000 * len(asks)
        assert not any(isinstance(value, np.ndarray) for ask in asks for value in vars_of(ask))


def vars_of(value: Any) -> list[Any]:
    import attrs

    return [*attrs.asdict(value).values()]


def test_what_was_measured_is_not_read_again(runs: Any, tmp_path: Path, monkeypatch: Any) -> None:
    cache = tmp_path / "measured"
    monkeypatch.setattr(meter, "_MOST", 4)
    dying = Counting(3)
    with pytest.raises(WorkerError, match=r"answered 3 of \d+ requests.*the cluster is gone") as error:
        padiff.compare(*runs, executor=dying, cache=cache)
    assert str(cache) in str(error.value)
    with cache.open("ab") as file:
        file.write(b"half a li")  # what a kill leaves
    again = Counting()
    found = padiff.compare(*runs, executor=again, cache=cache)
    assert told(found) == told(padiff.compare(*runs))
    asked = {ask.name for asks in again.asks for ask in asks}
    assert asked
    assert not asked & {ask.name for asks in dying.asks for ask in asks}
    third = Counting()
    assert told(padiff.compare(*runs, executor=third, cache=cache)) == told(found)
    assert not third.asks


def test_another_tolerance_is_judged_from_what_was_measured(runs: Any, tmp_path: Path) -> None:
    cache = tmp_path / "measured"
    for tolerance in (None, {"atol": 1e-3, "rtol": 1e-3}, {"atol": 10.0, "rtol": 0.0}, None):
        kept = padiff.compare(*runs, cache=cache, tolerance=tolerance)
        assert told(kept) == told(padiff.compare(*runs, tolerance=tolerance))
    assert padiff.compare(*runs, cache=cache, tolerance={"atol": 1e3, "rtol": 0.0}).counts.get("differs") is None


def test_a_damaged_line_is_measured_again(runs: Any, tmp_path: Path) -> None:
    cache = tmp_path / "measured"
    before = told(padiff.compare(*runs, cache=cache))
    content = bytearray(cache.read_bytes())
    rng = np.random.default_rng(0)
    for place in rng.integers(30, len(content), 40):
        content[place] ^= 1 << rng.integers(0, 8)
    cache.write_bytes(content)
    assert told(padiff.compare(*runs, cache=cache)) == before


def test_another_file_is_left_alone(runs: Any, tmp_path: Path) -> None:
    file = tmp_path / "thesis.txt"
    file.write_text("chapter one")
    with pytest.raises(InputError, match="is no file of measurements"):
        padiff.compare(*runs, cache=file)
    assert file.read_text() == "chapter one"
    with pytest.raises(InputError, match="cannot keep what is measured"):
        padiff.compare(*runs, cache=tmp_path / "nowhere" / "measured")


def test_a_worker_that_is_killed_is_told(runs: Any) -> None:
    with ProcessPoolExecutor(1, mp_context=__import__("multiprocessing").get_context("spawn")) as executor:
        executor.submit(os.getpid).result()
        executor.submit(os.kill, *(next(iter(executor._processes)), signal.SIGKILL))
        with pytest.raises(WorkerError, match="BrokenProcessPool"):
            padiff.compare(*runs, executor=executor)


def test_damage_that_a_worker_meets_is_the_damage(runs: Any, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(runs[1], tmp_path / "b")
    shard = next((tmp_path / "b").glob("*.safetensors"))
    content = bytearray(shard.read_bytes())
    content[-5] ^= 1
    shard.write_bytes(content)
    with ThreadPoolExecutor(2) as executor, pytest.raises(InputError, match="is damaged"):
        padiff.compare(runs[0], tmp_path / "b", executor=executor)
