"""Make this process a group of one rank, on the CPU, before DeepSpeed asks for one of its own."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

os.environ |= {"DS_ACCELERATOR": "cpu", "LOCAL_RANK": "0"}


@pytest.fixture(scope="session", autouse=True)
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    import deepspeed
    import megatron.core.models.gpt.gpt_model  # noqa: F401
    import torch.distributed as dist

    gc.set_threshold(20_000, 10, 10**6)  # else the garbage collector goes through all that was imported every few tests
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # else it compiles for a minute
    store = dist.FileStore(str(tmp_path_factory.mktemp("group") / "store"), 1)
    dist.init_process_group("gloo", rank=0, world_size=1, store=store)
    yield dist
    dist.destroy_process_group()


@pytest.fixture(scope="session")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Path]]:
    """Give what runs a script of jobs, a process a rank, and returns the folder where they recorded."""
    here = Path(__file__).parent
    told = tmp_path_factory.mktemp("jobs") / "stderr"

    def run(script: str, *names: str) -> Path:
        folder = tmp_path_factory.mktemp(Path(script).stem)
        assert forker.stdin is not None
        assert forker.stdout is not None
        forker.stdin.write(json.dumps([str(here / script), str(folder), *names]) + "\n")
        forker.stdin.flush()
        assert forker.stdout.readline() == "0\n", told.read_text()[-4000:]
        return folder

    with (
        told.open("w") as stderr,
        subprocess.Popen(
            [sys.executable, str(here / "forker.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        ) as forker,
    ):
        yield run
        forker.communicate()


@pytest.fixture(scope="session")
def jobs(request: pytest.FixtureRequest, ran: Callable[..., Path]) -> Path:
    """Return where the jobs recorded that the files of tests name as their ``JOBS``: all forks of one process."""
    modules = dict.fromkeys(item.module for item in request.session.items if isinstance(item, pytest.Function))
    return ran("jobs.py", *dict.fromkeys(name for module in modules for name in getattr(module, "JOBS", ())))
