"""No process outlives its use, no shared memory stays behind, and nothing grows from diff to diff."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

import padiff

from .conftest import PORTS, SITE, Sides

LARGE = {"ids": np.zeros((48, 6), np.int64), "x": np.ones((48, 6, 16), np.float32)}
WIDE = {"x": np.ones((4096, 4), np.float32)}
"""Inputs of the ports and of the toy with which activations go through shared memory, and not in the messages."""


def ended(pid: int, seconds: float = 5.0) -> bool:
    """Return whether a process ends in time; a zombie has ended."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.02)
    return False


def mapped(process: psutil.Process | None = None) -> int:
    """Return how many shared segments a process maps."""
    maps = (process or psutil.Process()).memory_maps(grouped=False)
    return sum("memfd:padiff" in found.path for found in maps)


def named() -> set[str]:
    """Return the names of padiff's files in the places for shared memory and temporary files."""
    places = (Path("/dev/shm"), Path(tempfile.gettempdir()))
    return {str(file) for place in places if place.is_dir() for file in place.glob("*padiff-*")}


@pytest.fixture
def worker() -> Any:
    """Return a remote model of its own."""
    with padiff.remote("toy_trouble:build") as found:
        yield found


def test_a_worker_starts_at_the_first_use_and_ends_when_closed(worker: padiff.Remote) -> None:
    assert worker.pid is None
    worker.start()
    pid = worker.pid
    assert pid in [child.pid for child in psutil.Process().children()]
    worker.start()
    assert worker.pid == pid
    worker.close()
    assert worker.pid is None
    assert ended(pid)
    worker.close()


def test_leaving_the_block_ends_it_after_an_error_too() -> None:
    pids: list[Any] = []
    worker = padiff.remote("toy_trouble:build")
    with pytest.raises(ZeroDivisionError), worker:
        _ = worker.start(), pids.append(worker.pid), 1 / 0
    assert ended(pids[0])


def test_nothing_refers_to_it_any_more() -> None:
    worker = padiff.remote("toy_trouble:build")
    worker.start()
    pid = worker.pid
    del worker
    gc.collect()
    assert ended(pid)


def test_a_build_that_fails_leaves_no_process() -> None:
    before = len(psutil.Process().children())
    with pytest.raises(padiff.WorkerError):
        padiff.remote("trouble:raises").start()
    assert len(psutil.Process().children()) == before


SCRIPT = """
import os, signal, sys, threading
import padiff
candidate = padiff.remote("toy_trouble:build", path={ports!r})
candidate.start()
print(candidate.pid, flush=True)
{end}
"""
KILL = "threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGKILL)).start(); "


FORK = "import time; (os.fork() or (time.sleep(8), os._exit(0))); os.kill(os.getpid(), signal.SIGKILL)"


@pytest.mark.parametrize(
    "end",
    [
        "",
        "os._exit(1)",
        KILL + "candidate.call('toy_trouble:hang')",
        KILL + "candidate.call('toy_trouble:hold')",
        FORK,
    ],
    ids=["end", "exit", "kill-while-it-hangs", "kill-while-it-holds-the-lock", "kill-with-a-fork-left"],
)
def test_no_worker_outlives_its_parent(end: str) -> None:
    before = named()
    script = SCRIPT.format(ports=[str(PORTS), str(SITE)], end=end)
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    process.wait(30)
    process.stdout.close()
    assert ended(pid)
    assert named() == before


def test_a_fork_of_the_parent_does_not_end_it(worker: padiff.Remote) -> None:
    worker.start()
    pid = worker.pid
    child = os.fork()
    if child == 0:
        worker.close()
        os._exit(0)
    os.waitpid(child, 0)
    assert worker.call("toy_trouble:turn", "") is None
    assert worker.pid == pid


def test_no_file_and_no_segment_stays_open() -> None:
    gc.collect()
    before, files, segments = named(), psutil.Process().num_fds(), mapped()
    with padiff.remote("toy_trouble:build") as reference, padiff.remote("toy_trouble:build") as candidate:
        assert padiff.diff(reference, candidate, WIDE).aligned
        assert named() == before, "shared memory has no names"
        assert mapped() == segments
        for one in (reference, candidate):
            held = one.rest()
            assert (held["bytes"], held["segments"]) == (0, 0)
            assert mapped(psutil.Process(one.pid)) == 0
    gc.collect()
    assert psutil.Process().num_fds() == files


def test_what_one_worker_recorded_another_reads_where_it_lies(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    from padiff.codec import Outgoing, home_of

    sent: dict[bool, int] = {True: 0, False: 0}
    put = Outgoing.put

    def noted(message: Outgoing, array: Any) -> Any:
        sent[home_of(array) is not None] += array.nbytes
        return put(message, array)

    monkeypatch.setattr(Outgoing, "put", noted)
    larger = {name: value.repeat(4, 0) for name, value in LARGE.items()}
    padiff.diff(sides.there("torch"), sides.there("paddle"), larger)
    assert sent[True] > 2e6
    assert sent[False] < 0.5 * sent[True], "this process copies what it made itself: the inputs, again for each run"


def test_a_worker_that_is_killed_leaves_nothing(worker: padiff.Remote) -> None:
    import toy_trouble

    gc.collect()
    files, segments = psutil.Process().num_fds(), mapped()
    worker.call("toy_trouble:turn", "kill")
    with pytest.raises(padiff.WorkerError):
        padiff.diff(toy_trouble.build(), worker, WIDE)
    gc.collect()
    assert mapped() == segments
    assert psutil.Process().num_fds() == files


def test_killed_from_outside_between_two_diffs() -> None:
    import torch_trouble

    with padiff.remote("torch_trouble:build") as worker:
        worker.start()
        pid = worker.pid
        os.kill(pid, signal.SIGKILL)
        until = time.monotonic() + 5
        while worker.pid is not None and time.monotonic() < until:
            time.sleep(0.02)  # a process of many threads takes its time to end
        assert padiff.diff(torch_trouble.build(), worker, {"x": np.ones((2, 4), np.float32)}).aligned
        assert worker.pid not in (None, pid)


def test_four_diffs_hold_no_more_than_two(sides: Sides) -> None:
    a, b = sides.there("torch"), sides.there("paddle", "epsilon scale")
    held = []
    for _ in range(4):
        padiff.diff(a, b, LARGE)
        gc.collect()
        here = [len(one.start()._connection.codec.known) for one in (a, b)]
        there = [(one.rest(), psutil.Process(one.pid).num_fds()) for one in (a, b)]
        held.append((here, there, mapped(), psutil.Process().num_fds()))
    assert held[1:] == [held[1]] * 3, held


def test_the_state_of_a_model_lasts_from_diff_to_diff_and_no_longer(sides: Sides) -> None:
    reference = sides.here("torch")
    with padiff.remote("torch_port:build") as candidate:
        padiff.diff(reference, candidate, LARGE)
        weight = candidate.call("torch_port:weights", "head.weight")
        assert (weight == reference.head.weight.detach().numpy()).all()
        reference.head.weight.data.mul_(2)
        assert not padiff.diff(reference, candidate, LARGE, transfer=False).aligned
        assert (candidate.call("torch_port:weights", "head.weight") == weight).all()


def test_a_model_comes_back_as_it_was(sides: Sides) -> None:
    worker = sides.there("torch")
    before = worker.call("torch_port:state")
    padiff.diff(worker, sides.there("paddle", "epsilon scale"), LARGE, loss=("torch_port:loss", "paddle_port:loss"))
    after = worker.call("torch_port:state")
    assert before.keys() == after.keys()
    for name, value in before.items():
        assert np.array_equal(value, after[name]), name
