"""Give the tests one worker for each framework: a start costs seconds, so its model is set up anew for each test."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.plugins import reset

PORTS = Path(__file__).with_name("ports")
SITE = Path(__file__).parents[1] / "toy" / "site"
"""What announces the toy framework, whose workers start several times as fast as a real one's."""
PORT = {"torch": "torch_port", "paddle": "paddle_port"}


@pytest.fixture(scope="session", autouse=True)
def _ports_importable() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(SITE)
        patch.syspath_prepend(PORTS)
        reset()
        yield
    reset()


@pytest.fixture(scope="session")
def workers(_ports_importable: None) -> Iterator[dict[str, padiff.Remote]]:
    """Return a remote model of each framework."""
    found = {name: padiff.remote(f"{port}:build") for name, port in PORT.items()}
    for one in found.values():
        one.launch()
    yield found
    for one in found.values():
        one.close()


class Sides:
    """Make either side, in this process or in its worker."""

    def __init__(self, workers: dict[str, padiff.Remote]) -> None:
        self.workers = workers

    def here(self, framework: str, fault: str = "", **options: Any) -> Any:
        """Return a model of this process."""
        port = import_module(PORT[framework])
        return port.set_up(port.build(), fault, **options)

    def there(self, framework: str, fault: str = "", **options: Any) -> padiff.Remote:
        """Return the worker's model."""
        worker = self.workers[framework]
        worker.timeout = None
        worker.call(f"{PORT[framework]}:make_ready", fault, **options)
        return worker

    def port(self, framework: str) -> Any:
        """Return the module that both sides import."""
        return import_module(PORT[framework])


@pytest.fixture
def sides(workers: dict[str, padiff.Remote]) -> Sides:
    """Return what makes models here and there."""
    return Sides(workers)


@pytest.fixture
def inputs() -> dict[str, Any]:
    """Return what the ports' network takes: indices, floats, and an argument without tensors."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((4, 6, 16), dtype="float32")
    return {"ids": rng.integers(0, 20, (4, 6)), "x": x, "options": {"a": [1, None]}}
