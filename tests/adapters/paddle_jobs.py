"""Run jobs of ``paddle.distributed`` on the CPU, one process a rank, each recorded: ``paddle_jobs.py FOLDER PORT``.

Gloo joins the processes. Four of the operations of fleet's model-parallel layers have no CPU kernel; they stand here,
made of collectives that do.
"""

from __future__ import annotations

import os
import sys
import traceback
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import paddle.distributed as dist
from paddle.distributed import fleet
from paddle.distributed.fleet.layers.mpu import mp_ops

import padiff

Job = Callable[[Path], None]
STEPS = 2
VOCABULARY, HIDDEN, INNER = 16, 8, 12


class Identity(paddle.autograd.PyLayer):
    """Nothing forward, a sum of the ranks' gradients backward."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return reduced(gradient)


class Sum(paddle.autograd.PyLayer):
    """The sum over the ranks forward, nothing backward."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return reduced(x)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient.clone()


class Gathered(paddle.autograd.PyLayer):
    """All ranks' parts forward, this one's backward."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        parts: list[Any] = []
        dist.all_gather(parts, x)
        return paddle.concat(parts, -1)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return paddle.chunk(gradient, dist.get_world_size(), -1)[dist.get_rank()].clone()


def reduced(x: Any) -> Any:
    found = x.clone()
    dist.all_reduce(found)
    return found


def sum_of(x: Any, **_: Any) -> Any:
    return Sum.apply(x)


class Net(paddle.nn.Layer):
    """An embedding, a layer split by its outputs, one split by its inputs, a norm and a head; or whole ones."""

    def __init__(self, *, split: bool) -> None:
        super().__init__()
        nn = paddle.nn
        if split:
            self.embedding: Any = fleet.meta_parallel.VocabParallelEmbedding(VOCABULARY, HIDDEN)
            column, row = fleet.meta_parallel.ColumnParallelLinear, fleet.meta_parallel.RowParallelLinear
            self.up: Any = column(HIDDEN, INNER, has_bias=True, gather_output=False)
            self.down: Any = row(INNER, HIDDEN, has_bias=True, input_is_parallel=True)
            self.head: Any = column(HIDDEN, VOCABULARY, has_bias=False, gather_output=True)
        else:
            self.embedding = nn.Embedding(VOCABULARY, HIDDEN)
            self.up, self.down = nn.Linear(HIDDEN, INNER), nn.Linear(INNER, HIDDEN)
            self.head = nn.Linear(HIDDEN, VOCABULARY, bias_attr=False)
        self.norm = nn.LayerNorm(HIDDEN)

    def forward(self, tokens: Any) -> Any:
        x = self.embedding(tokens)
        x = self.norm(x + self.down(paddle.nn.functional.gelu(self.up(x))))
        return self.head(x)


def filled(model: Any, *, split: bool) -> Any:
    """Return a model with the weights that their names seed, or this rank's shards of these."""
    for path, parameter in model.named_parameters():
        axis = parameter.split_axis if split and parameter.is_distributed else None
        shape = [size * (2 if dim == axis else 1) for dim, size in enumerate(parameter.shape)]
        values = np.random.default_rng(zlib.crc32(path.encode())).standard_normal(shape) * 0.3
        values = values if axis is None else np.split(values, 2, axis)[dist.get_rank()]
        parameter.set_value(values.astype("float32"))
    return model


def train(model: Any, folder: Path, given: Callable[[int], tuple[Any, Any]]) -> None:
    optimizer = paddle.optimizer.SGD(0.1, parameters=model.parameters())
    with padiff.record(model, folder) as recorder:
        for step in range(STEPS):
            tokens, labels = given(step)
            loss = paddle.nn.functional.cross_entropy(model(tokens).reshape([-1, VOCABULARY]), labels.reshape([-1]))
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            recorder.step(loss)


def batch(step: int) -> tuple[Any, Any]:
    draw = np.random.default_rng(step)
    both = draw.integers(0, VOCABULARY, (2, 4, 6))
    return paddle.to_tensor(both[0]), paddle.to_tensor(both[1])


def share(step: int) -> tuple[Any, Any]:
    tokens, labels = (paddle.chunk(one, dist.get_world_size())[dist.get_rank()] for one in batch(step))
    return tokens, labels


def one(folder: Path) -> None:
    train(filled(Net(split=False), split=False), folder / "one", batch)


def tensor_parallel(folder: Path) -> None:
    """Train with fleet's layers, then without the reduction of one of them."""
    strategy = fleet.DistributedStrategy()
    strategy.hybrid_configs = {"dp_degree": 1, "mp_degree": 2, "pp_degree": 1}
    fleet.init(is_collective=True, strategy=strategy)
    mp_ops._c_identity = lambda x, **_: Identity.apply(x)
    mp_ops._c_concat = lambda x, **_: Gathered.apply(x)
    mp_ops._mp_allreduce = sum_of
    train(filled(Net(split=True), split=True), folder / "fleet", batch)
    model = filled(Net(split=True), split=True)

    def unreduced(x: Any) -> Any:
        mp_ops._mp_allreduce = lambda x, **_: x
        try:
            return type(model.down).forward(model.down, x)
        finally:
            mp_ops._mp_allreduce = sum_of

    model.down.forward = unreduced
    train(model, folder / "fleet-no-all-reduce", batch)


def data_parallel(folder: Path) -> None:
    """Train with `paddle.DataParallel`, then with another layer norm on rank 1."""
    dist.init_parallel_env()
    train(paddle.DataParallel(filled(Net(split=False), split=False)), folder / "parallel", share)
    model = paddle.DataParallel(filled(Net(split=False), split=False))
    if dist.get_rank() == 1:
        model._layers.norm.weight.set_value(model._layers.norm.weight * 1.1)
    train(model, folder / "parallel-stale", share)


def run(job: Job, world: int, folder: Path, port: int) -> None:
    """Run a job to its end; raise where a rank does."""
    ranks = []
    for rank in range(world):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.environ |= {"PADDLE_TRAINER_ID": str(rank), "PADDLE_TRAINERS_NUM": str(world)}
                os.environ |= {"PADDLE_MASTER": f"127.0.0.1:{port}", "PADDLE_DISTRI_BACKEND": "gloo"}
                places = [f"127.0.0.1:{port + 1 + one}" for one in range(world)]
                os.environ |= {"PADDLE_TRAINER_ENDPOINTS": ",".join(places), "PADDLE_CURRENT_ENDPOINT": places[rank]}
                job(folder)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        ranks.append(child)
    codes = [os.waitpid(child, 0)[1] for child in ranks]
    if any(codes):
        msg = f"a rank of {job.__name__} failed"
        raise SystemExit(msg)


if __name__ == "__main__":
    base, first = Path(sys.argv[1]), int(sys.argv[2])
    run(one, 1, base, first)
    run(tensor_parallel, 2, base, first + 4)
    run(data_parallel, 2, base, first + 8)
