"""Measure what recording a training step costs.

Run ``python benchmarks/store.py`` (``--repeats``, ``--json``; ``--folder`` says where it writes, 5 GB at a time).

The model is a GPT of 98 million parameters (12 blocks of width 768, 12 heads, a vocabulary of 16,384 tied to the head),
trained in float32 by AdamW on 4 sequences of 128 tokens, on one thread.

One process takes turns: two plain steps, then a recording of two steps in each way; each figure is the median of the
turns after the first. CPU seconds are those of the whole process, its writing thread included, and of the second step:
the first one also writes the weights that the run starts from, and follows the dataflow (told beside). Peak RSS is that
of a process of its own for each way, of one step after one plain one. Bytes are those of a directory of one step;
beside them stands what one file for each tensor takes: every tensor that each call takes and gives, with its gradient,
the parameters' gradients, and the parameters before and after; no header is counted.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from machine import machine

AIMS = {
    "summary": 1.06,
    "sketch": 1.1,
    "sketch_mb": 1.0,
    "tensors": 1.5,
    "bytes": 0.6,
}
MSPROBE = {"summary": 1.11, "tensors": 2.61, "gigabytes": 1.81}
WAYS: dict[str, dict[str, Any]] = {
    "summary": {"values": "summary"},
    "summary, operations": {"values": "summary", "operations": True},
    "sketch": {"values": "sketch"},
    "tensors": {"values": "tensors"},
    "tensors, operations": {"values": "tensors", "operations": True},
}


# The training step -----------------------------------------------------------------------------------------------


def training(disturbed: float = 0.0) -> tuple[Any, Callable[[], Any]]:
    """Return the model, and what makes one training step of it; ``disturbed`` moves each weight, relatively."""
    import numpy as np
    import torch
    from torch import nn

    torch.manual_seed(0)
    torch.set_num_threads(1)
    width, heads, vocabulary, length = 768, 12, 16384, 128

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

        def forward(self, x: Any) -> Any:
            batch, tokens, _ = x.shape
            q, k, v = self.qkv(x).view(batch, tokens, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
            mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.out(mixed.transpose(1, 2).reshape(batch, tokens, width))

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.ln_1, self.attention, self.ln_2 = nn.LayerNorm(width), Attention(), nn.LayerNorm(width)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, x: Any) -> Any:
            x = x + self.attention(self.ln_1(x))
            return x + self.mlp(self.ln_2(x))

    class GPT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
            self.blocks, self.ln = nn.ModuleList(Block() for _ in range(12)), nn.LayerNorm(width)
            self.head = nn.Linear(width, vocabulary, bias=False)
            self.tokens.weight = self.head.weight
            for parameter in self.parameters():
                nn.init.normal_(parameter, 0.0, 0.02) if parameter.dim() > 1 else None

        def forward(self, ids: Any) -> Any:
            x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
            for block in self.blocks:
                x = block(x)
            return self.head(self.ln(x))

    model = GPT()
    if disturbed:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(1 + disturbed * (torch.rand_like(parameter) - 0.5))
    ids = torch.from_numpy(np.random.default_rng(0).integers(0, vocabulary, (4, length + 1)))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)

    def step() -> Any:
        logits = model(ids[:, :-1])
        loss = nn.functional.cross_entropy(logits.reshape(-1, vocabulary), ids[:, 1:].reshape(-1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return model, step


def recorded(folder: Path, steps: int = 1, disturbed: float = 0.0, **way: Any) -> None:
    """Record some steps."""
    import padiff

    model, step = training(disturbed)
    with padiff.record(model, folder, **way) as recorder:
        for _ in range(steps):
            recorder.step(step())


# Measuring -------------------------------------------------------------------------------------------------------


def timed(run: Callable[[], Any]) -> float:
    """Return the CPU seconds of one run, over all threads."""
    start = time.process_time()
    run()
    return time.process_time() - start


def peak_mb() -> float:
    """Return this process's peak RSS in MB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6


def record_cpu(folder: str, repeats: str) -> dict[str, Any]:
    """Return the CPU seconds of plain and recorded steps, which take turns in this process."""
    import padiff

    model, step = training()
    step()
    spent: dict[str, list[float]] = {"plain": []}
    first: dict[str, list[float]] = {}
    for _ in range(int(repeats) + 1):
        spent["plain"] += [timed(step), timed(step)]
        for name, way in WAYS.items():
            with padiff.record(model, Path(folder) / "run", **way) as recorder:
                first.setdefault(name, []).append(timed(lambda: recorder.step(step())))
                spent.setdefault(name, []).append(timed(lambda: recorder.step(step())))
            shutil.rmtree(Path(folder) / "run")
    middle = {name: statistics.median(values[1:]) for name, values in spent.items()}
    return {
        "seconds": middle,
        "first": {name: statistics.median(values[1:]) for name, values in first.items()},
        "ratios": {name: middle[name] / middle["plain"] for name in WAYS},
        "runs": spent,
    }


def record_rss(folder: str, name: str) -> float:
    """Return the peak RSS of one plain step, and one that is recorded in a way (``plain``: not at all)."""
    import padiff

    model, step = training()
    step()
    if name == "plain":
        step()
        return peak_mb()
    with padiff.record(model, Path(folder) / "run", **WAYS[name]) as recorder:
        recorder.step(step())
    shutil.rmtree(Path(folder) / "run")
    return peak_mb()


def sizes(folder: str, name: str) -> dict[str, float]:
    """Return the gigabytes of a directory of one step, and of a file for each tensor: of all, and of calls alone."""
    from padiff.trace import open_run

    path = Path(folder) / "run"
    recorded(path, **WAYS[name])
    whole = sum(file.stat().st_size for file in path.iterdir())
    trace = open_run(path).trace(0)
    apart, kept = 0, set()
    for call in trace.calls:
        for leaf in (*call.inputs, *call.outputs):
            for keys in (trace.values, trace.gradients):
                if keys.get(leaf.token, -1) >= 0:
                    apart += trace.store.lent(keys[leaf.token]).bytes
                    kept.add(keys[leaf.token])
    gradients = list(trace.parameter_gradients.values())
    state = [*trace.weights.values(), *trace.updated.values()]
    apart += sum(trace.store.lent(key).bytes for key in gradients)
    places = {trace.store.lent(key).placed for key in (*kept, *gradients)}
    around = sum(trace.store.lent(key).bytes for key in state)
    shutil.rmtree(path)
    found = {"directory": whole, "apart": apart + around, "calls": sum(p.size for p in places), "calls_apart": apart}
    return {what: size / 1e9 for what, size in found.items()}


def further(folder: str, name: str) -> float:
    """Return the megabytes that a further step takes: of a run of two, without what the first one leaves alone."""
    found = []
    for steps in (1, 2):
        path = Path(folder) / "run"
        recorded(path, steps, **WAYS[name])
        found.append(sum(file.stat().st_size for file in path.iterdir()))
        shutil.rmtree(path)
    return (found[1] - found[0]) / 1e6


CHILDREN: dict[str, Callable[..., Any]] = {
    "cpu": record_cpu,
    "rss": record_rss,
    "sizes": sizes,
    "further": further,
}


def child(script: str, *arguments: str) -> Any:
    """Run a script in a fresh process; return what it prints last, as JSON."""
    command = [sys.executable, os.path.abspath(script), "--child", *arguments]
    environment = {"OMP_NUM_THREADS": "1", **os.environ}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr[-4000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def measure(folder: Path, repeats: int) -> dict[str, Any]:
    """Return all figures."""
    figures: dict[str, Any] = child(__file__, "cpu", str(folder), str(repeats))
    figures["rss_mb"] = {name: child(__file__, "rss", str(folder), name) for name in ("plain", *WAYS)}
    written = [name for name in WAYS if name.startswith("tensors")]
    figures["sizes"] = {name: child(__file__, "sizes", str(folder), name) for name in written}
    figures["sketch_mb"] = child(__file__, "further", str(folder), "sketch")
    return figures


def shown(figures: dict[str, Any]) -> str:
    """Return the figures as text."""
    lines = [f"{'':22}{'CPU s':>8}{'ratio':>8}{'aim':>6}{'first step':>12}{'RSS, MB':>10}"]
    lines.append(f"{'plain step':22}{figures['seconds']['plain']:8.2f}{'':26}{figures['rss_mb']['plain']:10.0f}")
    for name in WAYS:
        aim = AIMS.get(name, "")
        lines.append(
            f"{name:22}{figures['seconds'][name]:8.2f}{figures['ratios'][name]:8.3f}{aim:>6}"
            f"{figures['first'][name]:12.2f}{figures['rss_mb'][name]:10.0f}"
        )
    for name, size in figures["sizes"].items():
        lines.append(
            f"{name}: {size['directory']:.2f} GB, one file for each tensor {size['apart']:.2f} GB "
            f"({size['directory'] / size['apart']:.0%}); calls and gradients alone {size['calls']:.2f} GB of "
            f"{size['calls_apart']:.2f} GB ({size['calls'] / size['calls_apart']:.0%}); aim {AIMS['bytes']:.0%}"
        )
    lines.append(f"sketch: a further step takes {figures['sketch_mb']:.2f} MB; aim {AIMS['sketch_mb']}")
    return "\n".join([*lines, f"msprobe 26.2, measured earlier elsewhere: {MSPROBE}"])


def main() -> int:
    """Print the figures."""
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(CHILDREN[sys.argv[2]](*sys.argv[3:])))
        return 0
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3, help="counted turns of each way of recording (default 3)")
    parser.add_argument("--folder", help="where to write (default: the system's temporary folder)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="padiff-store-") as folder:
        figures = measure(Path(folder), options.repeats)
    where = machine("numpy", "torch")
    if options.json:
        print(json.dumps({"machine": where, "figures": figures, "aims": AIMS, "msprobe": MSPROBE}, indent=2))
        return 0
    print(shown(figures) + "\n\n" + ", ".join(f"{key} {value}" for key, value in where.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
