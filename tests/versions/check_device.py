"""Check padiff on a device of this machine: right models beside their copies on the CPU, and planted faults.

Run ``python -m tests.versions.check_device`` (``--device cuda``, ``--only WORD``, ``--json FILE``): minutes on an H100.
Of each model one copy lies on the CPU and one on the device, and each turn sets what hardware is brought up with: TF32,
kernels that are chosen by measuring, channels_last, bfloat16, float16, automatic casts, each way of attention. Right
models have to be aligned, and a fault has to be the source, at its place and nowhere else; what was recorded on the
device has to compare so with what the CPU records. The exit status is 1 where a verdict is wrong. It needs torch and
padiff alone, and runs on the CPU too, where all of it is plain (``--device cpu``).
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import torch

import padiff

from .device_models import FAULTS, MODELS, Fault, build, inputs_of

FULL = "float32"
NARROW = ("bfloat16", "float16")


@attrs.frozen
class Turn:
    """One way of running: what is switched on, and in which type the models are."""

    name: str
    dtype: str = FULL
    tf32: bool = False
    benchmark: bool = False
    channels_last: bool = False
    cast: str | None = None
    attention: str | None = None
    both: bool = False
    """Whether both models lie on the device."""
    first: bool = False
    """Whether the reference lies on the device, and the candidate on the CPU."""

    @contextmanager
    def set(self, device: str) -> Iterator[None]:
        """Switch on what the turn is about."""
        kind = torch.device(device).type
        with ExitStack() as stack:
            for owner in (torch.backends.cuda.matmul, torch.backends.cudnn):
                stack.enter_context(_switched(owner, "allow_tf32", self.tf32))
            stack.enter_context(_switched(torch.backends.cudnn, "benchmark", self.benchmark))
            if self.cast is not None:
                for one in {"cpu", kind}:
                    stack.enter_context(torch.autocast(one, getattr(torch, self.cast)))
            if self.attention is not None:
                from torch.nn.attention import SDPBackend, sdpa_kernel

                stack.enter_context(sdpa_kernel([getattr(SDPBackend, self.attention), SDPBackend.MATH]))
            yield


TURNS = (
    Turn("float32"),
    Turn("float32, reference on the device", first=True),
    Turn("float32, both on the device", both=True),
    Turn("tf32", tf32=True),
    Turn("tf32, reference on the device", tf32=True, first=True),
    Turn("cudnn.benchmark", tf32=True, benchmark=True),
    Turn("channels_last", channels_last=True),
    Turn("bfloat16", dtype="bfloat16"),
    Turn("float16, both on the device", dtype="float16", both=True),
    Turn("autocast bfloat16", cast="bfloat16"),
    Turn("autocast float16, both on the device", cast="float16", both=True),
    Turn("flash attention", dtype="bfloat16", attention="FLASH_ATTENTION", both=True),
    Turn("efficient attention", attention="EFFICIENT_ATTENTION"),
    Turn("attention by cuDNN", dtype="bfloat16", attention="CUDNN_ATTENTION", both=True),
    Turn("attention by matrices", attention="MATH"),
)
PLANTED = ("float32", "float32, reference on the device", "tf32", "bfloat16", "autocast bfloat16")
"""The turns in which faults are planted."""


@contextmanager
def _switched(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def placed(model: Any, turn: Turn, device: str) -> Any:
    """Return a model as a turn has it, on a device."""
    form = {"memory_format": torch.channels_last} if turn.channels_last else {}
    return model.to(device, getattr(torch, turn.dtype), **form)


def sides(name: str, turn: Turn, device: str, fault: str | None = None) -> tuple[Any, Any]:
    """Return the reference and the candidate, which may have a fault."""
    places = (device, device) if turn.both else (device, "cpu") if turn.first else ("cpu", device)
    plans = frozenset[str](), frozenset({fault} if fault else ())
    first, second = (placed(build(name, plan), turn, place) for plan, place in zip(plans, places, strict=True))
    return first, second


def given(name: str, turn: Turn) -> dict[str, Any]:
    """Return a model's inputs in a turn's type."""
    found = inputs_of(name)
    tensors = {key: torch.from_numpy(value) for key, value in found.items()}
    return {key: one.to(getattr(torch, turn.dtype)) if one.is_floating_point() else one for key, one in tensors.items()}


# What is asked ---------------------------------------------------------------------------------------------------


def right(name: str, turn: Turn, device: str) -> str | None:
    """Return what is wrong with the report of two right models; None where nothing is."""
    with turn.set(device):
        report = padiff.diff(*sides(name, turn, device), given(name, turn))
    wrong = [one for one in report.findings if one.counts]
    if report.aligned and report.transfer.unverified:
        return f"unverified: {', '.join(report.transfer.unverified[:5])}"
    return None if report.aligned else _said(report, wrong)


def planted(fault: Fault, turn: Turn, device: str) -> str | None:
    """Return what is wrong with the report of a planted fault."""
    with turn.set(device):
        report = padiff.diff(*sides(fault.model, turn, device, fault.name), given(fault.model, turn))
    return None if fault.is_named(report) else _said(report, report.sources)


def recorded(name: str, values: str, device: str, fault: Fault | None = None) -> str | None:
    """Return what is wrong with the comparison of a run on the CPU with one on the device."""
    with tempfile.TemporaryDirectory() as folder, Turn("").set(device):
        paths = [Path(folder) / one for one in ("cpu", "device")]
        models = sides(name, Turn(""), device, fault and fault.name)
        models[1].load_state_dict(models[0].state_dict())
        for model, path, place in zip(models, paths, ("cpu", device), strict=True):
            _trained(model, name, path, place, values)
        report = padiff.compare(*paths)
    if fault is not None:
        return None if fault.is_named(report) else _said(report, report.sources)
    return None if report.aligned else _said(report, [one for one in report.findings if one.counts])


def _trained(model: Any, name: str, path: Path, place: str, values: str) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    with padiff.record(model, path, values=values) as recorder:  # type: ignore[arg-type]
        for _ in range(2):
            output = model(**{key: torch.from_numpy(one).to(place) for key, one in inputs_of(name).items()})
            loss = (output.float() ** 2).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            recorder.step(loss)


def _said(report: Any, findings: Any) -> str:
    """Return in a few lines what a report says."""
    lines = [repr(report)]
    for one in list(findings)[:6]:
        place = one.candidate or one.reference
        cause = f" ({one.cause})" if one.cause else ""
        lines.append(f"{one.verdict.value} {one.phase} {place.path!r} {one.what} {one.figures}{cause}"[:300])
    return "\n      ".join(lines)


def tasks(device: str) -> Iterator[tuple[str, Callable[[], str | None]]]:
    """Yield what is checked, each with its name."""
    for turn in TURNS:
        for name in MODELS:
            if turn.attention is None or name == "gpt":
                yield f"{turn.name}: {name}", lambda name=name, turn=turn: right(name, turn, device)  # type: ignore[misc]
    known = {turn.name: turn for turn in TURNS}
    for words in PLANTED:
        for fault in FAULTS:
            if fault.shows(known[words].dtype, known[words].cast):
                turn = known[words]
                yield (
                    f"{words}: {fault.name} in {fault.model}",
                    lambda fault=fault, turn=turn: planted(fault, turn, device),  # type: ignore[misc]
                )
    for values in ("tensors", "summary", "sketch"):
        for name in MODELS:
            if name != "drop":
                yield f"recorded, {values}: {name}", lambda n=name, v=values: recorded(n, v, device)  # type: ignore[misc]
        for fault in FAULTS:
            if fault.recorded:
                yield (
                    f"recorded, {values}: {fault.name} in {fault.model}",
                    lambda fault=fault, v=values: recorded(fault.model, v, device, fault),  # type: ignore[misc]
                )


def main() -> int:
    """Print what was checked, and what was wrong; return 1 where anything was."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cuda", help="as torch names it (default cuda)")
    parser.add_argument("--only", default="", metavar="WORD", help="what has the word in its name alone")
    parser.add_argument("--json", metavar="FILE", help="write what was found")
    options = parser.parse_args()
    found: dict[str, dict[str, Any]] = {}
    for name, task in tasks(options.device):
        if options.only not in name:
            continue
        started = time.perf_counter()
        try:
            wrong = task()
        except Exception:
            wrong = traceback.format_exc(limit=-8)
        found[name] = {"wrong": wrong, "seconds": round(time.perf_counter() - started, 2)}
        print(f"{'WRONG' if wrong else 'ok   '} {found[name]['seconds']:6.2f} s  {name}", flush=True)
        if wrong:
            print(f"      {wrong}", flush=True)
    failed = [name for name, one in found.items() if one["wrong"]]
    print(f"{len(found) - len(failed)} of {len(found)} as expected; numpy {np.__version__}, torch {torch.__version__}")
    if options.json:
        Path(options.json).write_text(json.dumps(found, indent=1), encoding="utf-8")
    return 1 if failed or not found else 0


if __name__ == "__main__":
    sys.exit(main())
