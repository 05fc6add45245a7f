"""A layer that is split over ranks, recorded by one rank and by two: what docs/distributed.md compares."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import multiprocessing

import padiff


class Split(torch.nn.Module):
    """A linear layer of which each rank has the weights of some inputs."""

    def __init__(self, weight, rank, world):
        super().__init__()
        self.rank, self.world = rank, world
        self.weight = torch.nn.Parameter(weight.chunk(world, 1)[rank].clone())

    def forward(self, x):
        return torch.nn.functional.linear(x.chunk(self.world, -1)[self.rank], self.weight)  # and the all-reduce?


def main(rank, world, folder):
    store = dist.FileStore(f"{folder}.store", world)
    dist.init_process_group("gloo", rank=rank, world_size=world, store=store)
    torch.manual_seed(0)
    first = torch.nn.Linear(16, 32)
    model = torch.nn.Sequential(first, torch.nn.GELU(), Split(torch.randn(4, 32), rank, world), torch.nn.LayerNorm(4))
    with padiff.record(model, folder) as recorder, torch.no_grad():
        model(torch.randn(8, 16))
        recorder.step()


if __name__ == "__main__":
    for world, folder in ((1, "one"), (2, "two")):
        multiprocessing.start_processes(main, (world, folder), nprocs=world, start_method="fork")
