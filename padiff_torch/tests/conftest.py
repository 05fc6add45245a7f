"""Make this process a group of one rank, on the CPU, before DeepSpeed asks for one of its own."""

from __future__ import annotations

import gc
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
def ran(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Return what runs a script of jobs, a process a rank, and returns the folder where they recorded."""

    def run(script: str, *names: str) -> Path:
        folder = tmp_path_factory.mktemp(Path(script).stem)
        done = subprocess.run(
            [sys.executable, str(Path(__file__).parent / script), str(folder), *names],
            capture_output=True,
            text=True,
            timeout=600,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )
        assert done.returncode == 0, done.stderr[-4000:]
        return folder

    return run


@pytest.fixture(scope="session")
def jobs(request: pytest.FixtureRequest, ran: Callable[..., Path]) -> Path:
    """Return where the jobs recorded that the files of tests name as their ``JOBS``: all forks of one process."""
    modules = dict.fromkeys(item.module for item in request.session.items if isinstance(item, pytest.Function))
    return ran("jobs.py", *dict.fromkeys(name for module in modules for name in getattr(module, "JOBS", ())))
