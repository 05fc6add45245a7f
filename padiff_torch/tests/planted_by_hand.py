"""Jobs whose layers, or sequences, are split over ranks by hand: each may have one fault."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jobs
import torch
import torch.distributed as dist

import padiff

__all__ = ["ONE", "TWO", "by_hand"]


class Row(torch.nn.Module):
    """A linear layer split by its inputs, by hand."""

    def __init__(self, whole: Any, rank: int, world: int, fault: str) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(whole.weight.detach().chunk(world, 1)[rank].clone())
        self.bias = torch.nn.Parameter(whole.bias.detach().clone())
        self.fault = fault

    def forward(self, x: Any) -> Any:
        from torch.distributed.nn.functional import all_reduce

        part = torch.nn.functional.linear(x, self.weight, self.bias if self.fault == "bias" else None)
        if dist.get_world_size() > 1 and self.fault != "unsummed":
            part = all_reduce(part)
        return part if self.fault == "bias" else part + self.bias


class Column(torch.nn.Module):
    """A linear layer split by its outputs, by hand; as a head it gathers them."""

    def __init__(self, whole: Any, rank: int, world: int, *, gather: bool = False, fault: str = "") -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(whole.weight.detach().chunk(world)[rank].clone())
        self.gather, self.fault = gather, fault

    def forward(self, x: Any) -> Any:
        from torch.distributed.nn.functional import all_gather

        part = torch.nn.functional.linear(x, self.weight)
        if not self.gather or dist.get_world_size() < 2:
            return part
        parts = all_gather(part)
        return torch.cat(parts[::-1] if self.fault == "gathered" else parts, -1)


def by_hand(fault: str) -> jobs.Job:
    """Return a job whose layers are split over all ranks, which nothing says; it is not trained."""

    def job(rank: int, world: int, folder: Path) -> None:
        torch.manual_seed(0)
        whole = [torch.nn.Linear(16, 32, bias=False), torch.nn.Linear(32, 16), torch.nn.Linear(16, 8, bias=False)]
        model = torch.nn.Sequential(
            Column(whole[0], rank, world),
            torch.nn.GELU(),
            Row(whole[1], rank, world, fault),
            torch.nn.LayerNorm(16),
            Column(whole[2], rank, world, gather=True, fault=fault),
        )
        with padiff.record(model, folder) as recorder, torch.no_grad():
            model(torch.randn(4, 16, generator=torch.Generator().manual_seed(1)))
            recorder.step()

    return job


BY_HAND = ("clean", "bias", "gathered", "unsummed")


class Sharing(torch.nn.Module):
    """Layers that are split over ranks of which each has a part of all sequences, and of their norms."""

    def __init__(self, rank: int, world: int) -> None:
        super().__init__()
        self.rank, self.world = rank, world
        self.norm = torch.nn.LayerNorm(16)
        self.up = Column(torch.nn.Linear(16, 32, bias=False), rank, world)
        self.down = Row(torch.nn.Linear(32, 16), rank, world, "")

    def forward(self, x: Any) -> Any:
        from torch.distributed.nn.functional import all_reduce

        whole = self.norm(x)
        if self.world > 1:
            parts = [torch.zeros_like(whole)] * self.world
            parts[self.rank] = whole
            whole = all_reduce(torch.cat(parts, 1))
        return x + self.down(torch.tanh(self.up(whole))).chunk(self.world, 1)[self.rank]


def shared(fault: str) -> jobs.Job:
    """Return a job that trains such layers, by a mean over what each rank has of the sequences."""

    def job(rank: int, world: int, folder: Path) -> None:
        torch.manual_seed(0)
        model = Sharing(rank, world)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with padiff.record(model, folder, optimizer=optimizer) as recorder:
            for step in range(jobs.STEPS):
                given = torch.randn(4, 6, 16, generator=torch.Generator().manual_seed(step)).chunk(world, 1)[rank]
                loss = model(given).pow(3).mean()
                loss.backward()
                for path, one in model.named_parameters():
                    if path == "norm.weight" and fault == "unreduced":
                        continue
                    if world > 1 and path not in ("up.weight", "down.weight"):
                        torch.distributed.all_reduce(one.grad)
                    one.grad /= world
                optimizer.step()
                optimizer.zero_grad()
                recorder.step(loss)

    return job


SHARED = ("clean", "unreduced")


ONE: dict[str, jobs.Job] = {"hand-clean": by_hand("clean"), "shared-clean": shared("clean")}
"""Name -> a job of one process."""
TWO: dict[str, jobs.Job] = {
    **{f"hand-{fault}": by_hand(fault) for fault in BY_HAND},
    **{f"shared-{fault}": shared(fault) for fault in SHARED},
}
"""Name -> a job of two."""
