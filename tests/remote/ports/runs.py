"""Record models of the pairs over training steps, and force them: ``python runs.py FRAMEWORK < jobs.json``.

A process of one framework, which the tests of recorded runs start. Each job is a dict: ``pair`` and ``faults`` name the
model; it is recorded to ``run``, from the weights of the run ``weights``, or run against the run ``force``. Prints what
came out as JSON, in the last line.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

import padiff
from pairs import zoo

STEPS = 2
RATE = 0.05


def batches(pair: str) -> list[dict[str, np.ndarray]]:
    """Return the inputs of each step."""
    return [zoo.inputs(pair, seed=step) for step in range(STEPS)]


def mean_square(output: Any) -> Any:
    """Return the loss."""
    return (output * output).mean()


def _torch(model: Any) -> tuple[Any, Callable[..., Any]]:
    import torch

    optimizer = torch.optim.SGD(model.parameters(), RATE)

    def step(batch: dict[str, np.ndarray]) -> Any:
        loss = mean_square(model(**{name: torch.from_numpy(array) for name, array in batch.items()}))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return optimizer, step


def _paddle(model: Any) -> tuple[Any, Callable[..., Any]]:
    import paddle

    optimizer = paddle.optimizer.SGD(RATE, parameters=model.parameters())

    def step(batch: dict[str, np.ndarray]) -> Any:
        loss = mean_square(model(**{name: paddle.to_tensor(array) for name, array in batch.items()}))
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        return loss

    return optimizer, step


def _mindspore(model: Any) -> tuple[Any, Callable[..., Any]]:
    import mindspore
    from mindspore.experimental import optim

    optimizer = optim.SGD(list(model.trainable_params()), lr=RATE)

    def step(batch: dict[str, np.ndarray]) -> Any:
        arrays = [mindspore.Tensor(array) for array in batch.values()]
        gradients = mindspore.value_and_grad(lambda *given: mean_square(model(*given)), None, optimizer.parameters)
        loss, found = gradients(*arrays)
        optimizer(found)
        return loss

    return optimizer, step


TRAINING = {"torch": _torch, "paddle": _paddle, "mindspore": _mindspore}


def told(report: padiff.Report) -> dict[str, Any]:
    """Return the verdict, and the places of the sources."""
    sources = [(one.phase.value, one.candidate.path, one.step) for one in report.sources]
    return {"aligned": report.aligned, "sources": sources, "text": str(report), "forward_only": report.forward_only}


def _done(framework: str, job: dict[str, Any]) -> dict[str, Any]:
    model = zoo.build(job["pair"], framework, job.get("faults", ()), seed=1 if "weights" in job else 0)
    if "force" in job:
        optimizer = TRAINING[framework](model)[0]
        return told(padiff.compare(job["force"], force=model, optimizer=optimizer, **job.get("options", {})))
    if "weights" in job:
        assert not padiff.transfer(job["weights"], model, batches(job["pair"])[0]).unmatched_candidate
    _, step = TRAINING[framework](model)
    with padiff.record(model, job["run"]) as recorder:
        for batch in batches(job["pair"]):
            recorder.step(step(batch))
    return {}


def main() -> None:
    """Do the jobs that standard input lists."""
    framework = sys.argv[1]
    if framework == "mindspore":  # as tests/conftest.py does, and for the same reason
        import_module(framework).set_context(runtime_num_threads=1)
    import_module(framework)
    others = {"torch", "paddle", "mindspore"} - {framework}
    found = [_done(framework, job) for job in json.load(sys.stdin)]
    assert not others & sys.modules.keys(), others & sys.modules.keys()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
