"""Run what the torch adapter does for devices: on a stand-in for one, with a mocked CUDA, on the meta device."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import padiff
from padiff_torch.adapter import TorchAdapter

ROOT = Path(__file__).parents[2]
ADAPTER = TorchAdapter()
ON_A_DEVICE = """
import numpy as np
import torch
from torch import nn

import padiff
from padiff.testing import AdapterTests
from tests.adapters.far_device import DEVICE, Far, Generators
from tests.adapters.test_torch_adapter import ADAPTER, TestTorch


class Net(nn.Module):
    def __init__(self, eps=1e-5, device="cpu"):
        super().__init__()
        self.first, self.norm, self.scaled = nn.Linear(4, 8), nn.BatchNorm1d(8), nn.LayerNorm(8, eps)
        self.drop, self.last = nn.Dropout(0.3), nn.Linear(8, 2)
        self.register_buffer("scale", torch.full((8,), 2.0))
        self.place = device

    def forward(self, x):
        assert x.device.type == self.place.partition(":")[0], x.device
        hidden = nn.functional.relu(self.norm(self.first(x)), inplace=True)
        return self.last(self.drop(self.scaled(hidden) * self.scale))


class OnDevice(TestTorch):
    accelerator = DEVICE


suite = OnDevice()
for name in ("test_models_on_accelerators_say_so", "test_tensors_live_on_accelerators"):
    getattr(AdapterTests, name)(suite)

x = {"x": np.random.default_rng(0).standard_normal((5, 4), dtype="float32")}
far = Net(device=DEVICE).to(DEVICE)
assert isinstance(far.first.weight, Far)
state = Generators.state.clone()
report = padiff.diff(Net(), far, x)
assert report.aligned, str(report)
assert torch.equal(Generators.state, state), "the device's generator was not put back"
assert report.transfer.verified == report.transfer.copied == 10, report.transfer
assert report.environment["torch"]["device"] == "npu", report.environment


class Still(Net):  # what draws runs 64 times on each side
    def __init__(self, eps=1e-5, device="cpu"):
        super().__init__(eps, device)
        self.drop.p = 0.0


wrong = padiff.diff(Still(), Still(1e-3, DEVICE).to(DEVICE), x, operations=True)
assert [(one.candidate.path, one.cause) for one in wrong.sources] == [
    ("scaled", "eps: 1e-05 in the reference, 0.001 in the candidate")
], str(wrong)
turned = padiff.diff(Still(1e-3, DEVICE).to(DEVICE), Still(), x)
assert [one.candidate.path for one in turned.sources] == ["scaled"], str(turned)
models = Still(), Still(device=DEVICE).to(DEVICE)
optimizers = [torch.optim.AdamW(model.parameters(), lr=lr) for model, lr in zip(models, (0.1, 0.1))]
assert padiff.diff(*models, x, optimizers=tuple(optimizers), steps=2).aligned
Generators.coarse = True  # TF32
coarse = padiff.diff(Still(), Still(device=DEVICE).to(DEVICE), x)
assert coarse.aligned and {str(one.verdict.value) for one in coarse.findings} >= {"precision"}, str(coarse)
turned = padiff.diff(Still(device=DEVICE).to(DEVICE), Still(), x)
assert turned.aligned, str(turned)
wrong = padiff.diff(Still(), Still(1e-3, DEVICE).to(DEVICE), x)
assert [one.candidate.path for one in wrong.sources] == ["scaled"], str(wrong)
Generators.coarse = False


# Without parameters, and with an input that lies on the CPU whatever the device: a length.
class Shifted(nn.Module):
    def forward(self, x, length):
        assert (x.device.type, length.device.type) == ("npu" if far_now else "cpu", "cpu"), (x.device, length.device)
        return nn.functional.gelu(x * length, approximate="tanh" if wrong_now else "none")


class Lengths(Still):
    def __init__(self, device="cpu"):
        super().__init__(device=device)
        self.shifted = Shifted()

    def forward(self, x):
        return super().forward(self.shifted(x, torch.tensor(2.0)))


far_now, wrong_now = True, True
near = Lengths()
far = Lengths(DEVICE).to(DEVICE)


class Right(Shifted):
    def forward(self, x, length):
        assert x.device.type == "cpu"
        return nn.functional.gelu(x * length)


near.shifted = Right()
told = padiff.diff(near, far, x)
assert [one.candidate.path for one in told.sources] == ["shifted"], str(told)
assert told.sources[0].figures.rel_l2_float64 > 1e-5, "it was not replayed where it ran"


class Spread(Still):
    def forward(self, x):
        hidden = nn.functional.relu(self.norm(self.first(x)), inplace=True)
        return self.last(self.drop(self.scaled(hidden) * self.scale).to(self.last.weight.device))


for eps, expected in ((1e-5, []), (1e-3, ["scaled"])):
    spread = Spread(eps)
    spread.last.to(DEVICE)
    report = padiff.diff(Still(), spread, x)
    assert [one.candidate.path for one in report.sources] == expected, str(report)
assert report.environment["torch"], report.environment
with ADAPTER.seeded(7):
    assert ADAPTER.random_state() == ADAPTER.random_state()
print("done")
"""


@pytest.mark.skipif(
    not hasattr(torch.utils.backend_registration, "_setup_privateuseone_for_python_backend"),
    reason="this torch has no backends that are written in Python",
)
def test_diffs_run_on_a_device_and_name_its_faults() -> None:
    line = [sys.executable, "-W", "ignore", "-c", ON_A_DEVICE]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.splitlines()[-1] == "done"


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Let torch answer as if it had two devices; return what states were set."""
    states = [torch.arange(3, dtype=torch.uint8), torch.ones(3, dtype=torch.uint8)]
    given: list[Any] = []
    answers: dict[str, Any] = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "device_count": lambda: 2,
        "get_device_name": lambda index: f"Stand-in {index}",
        "get_rng_state_all": lambda: [state.clone() for state in states],
        "set_rng_state_all": given.append,
    }
    for name, answer in answers.items():
        monkeypatch.setattr(torch.cuda, name, answer)
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: 90100)
    if hasattr(torch, "accelerator"):
        found = torch.device("cuda")
        monkeypatch.setattr("padiff_torch.adapter.TORCH.accelerator", lambda: found.type)
    return given


def test_generators_of_cuda_are_seeded_and_put_back(cuda: list[Any]) -> None:
    before = torch.get_rng_state()
    with ADAPTER.seeded(3):
        assert torch.initial_seed() == 3
        torch.rand(2)
    assert torch.equal(torch.get_rng_state(), before)
    ((first, second),) = cuda
    assert (first.tolist(), second.tolist()) == ([0, 1, 2], [1, 1, 1])
    assert len(ADAPTER.random_state()) == 4
    assert ADAPTER.random_state() == ADAPTER.random_state()


def test_the_environment_names_what_changes_a_float_on_cuda(cuda: list[Any]) -> None:
    found = ADAPTER.environment()
    assert found["device"] == "Stand-in 0, Stand-in 1"
    assert {"cuda", "cudnn", "cudnn benchmark"} <= set(found)
    assert all(isinstance(value, str) for value in found.values())
    assert found["tf32"] == "convolutions, recurrent layers"


SWITCHES = (
    "torch.backends.cuda.matmul.fp32_precision = 'tf32'",
    "torch.backends.cudnn.conv.fp32_precision = 'ieee'",
    "torch.backends.fp32_precision = 'tf32'",
)


@pytest.mark.skipif(not hasattr(torch.backends, "fp32_precision"), reason="this torch has one switch for all")
def test_switches_of_each_backend_are_read() -> None:
    """The older ways of asking raise then, and so did every diff."""
    script = (
        "import os, torch\nfrom padiff_torch.adapter import TorchAdapter\nfrom padiff_torch.versions import TORCH\n"
    )
    for switch in SWITCHES:  # a switch cannot be taken back: each in a process of its own
        script += f"if os.fork():\n    assert os.wait()[1] == 0, {switch!r}\nelse:\n    {switch}\n"
        script += "    TorchAdapter().environment()\n    print(TORCH.products(), flush=True)\n    os._exit(0)\n"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    for switch, line in zip(SWITCHES, done.stdout.splitlines(), strict=True):
        place, _, precision = switch.partition(" = ")
        key = "convolutions" if "conv" in place else "matrices"
        assert f"'{key}': {precision}" in line


def test_an_error_that_a_device_tells_of_later_is_the_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel's error shows where values are read: in padiff's own code, as a rule."""

    def failing(*_: Any) -> Any:
        msg = "CUDA error: device-side assert triggered"
        raise RuntimeError(msg)

    model = nn.Linear(3, 2)
    monkeypatch.setattr(torch.Tensor, "cpu", failing)
    monkeypatch.setattr("padiff_torch.tensor._address", lambda native: None)
    monkeypatch.setattr("padiff_torch.tensor.filled", lambda native, array: native)
    with pytest.raises(RuntimeError, match="device-side") as caught:
        ADAPTER.tensor(model.weight).numpy()
    from padiff.recording._frames import own_line

    assert own_line(caught.value, (ADAPTER,)) is None


def test_the_meta_device_holds_no_values_and_is_refused_in_words() -> None:
    tensor = ADAPTER.tensor(ADAPTER.from_numpy(np.ones((2, 3), "float32"), device="meta"))
    assert (tensor.device, tensor.dtype, tensor.shape) == ("meta", "float32", (2, 3))
    assert tensor.writable() is None
    assert tensor.extent() is None
    with pytest.raises(padiff.InputError, match=r"meta device.*\nHint: "):
        tensor.numpy()
    assert ADAPTER.convert(torch.ones(2), device="meta").is_meta
    assert tensor.swapped(np.zeros((2, 3), "float32")).is_meta
    model = nn.Sequential(nn.Linear(3, 2), nn.ReLU())
    with pytest.raises(padiff.InputError, match="meta"):
        padiff.diff(model, nn.Sequential(nn.Linear(3, 2, device="meta"), nn.ReLU()), (np.ones((1, 3), "float32"),))


class Parted(nn.Linear):
    """A linear layer whose products fall into sums, of which each is rounded: another kernel's way."""

    parts = 1

    def forward(self, x: Any) -> Any:
        pairs = zip(x.chunk(self.parts, -1), self.weight.chunk(self.parts, -1), strict=True)
        found = sum(nn.functional.linear(one, weight) for one, weight in pairs)
        return found + self.bias.to(found.dtype)


class Cast(nn.Module):
    """A network under automatic casts."""

    def __init__(self, parts: int = 1, eps: float = 1e-5) -> None:
        super().__init__()
        self.first, self.norm, self.last = Parted(48, 64), nn.LayerNorm(64, eps), Parted(64, 8)
        self.first.parts = self.last.parts = parts

    def forward(self, x: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return self.last(nn.functional.gelu(self.norm(self.first(x))))


def test_what_automatic_casts_round_otherwise_is_none_of_a_faults(tmp_path: Path) -> None:
    """The gradients of float32 parameters come through bfloat16, and are as coarse as that."""
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((16, 48), dtype="float32"))
    sides = {"one": Cast(), "other": Cast(parts=4), "wrong": Cast(parts=4, eps=1.0)}
    for name, model in sides.items():
        model.load_state_dict(sides["one"].state_dict())
        with padiff.record(model, tmp_path / name) as recorder:
            loss = (model(x).float() ** 2).mean()
            (loss * 1024).backward()
            recorder.step(loss)
    assert not torch.equal(sides["one"].first.weight.grad, sides["other"].first.weight.grad)
    report = padiff.compare(tmp_path / "one", tmp_path / "other")
    assert report.aligned, str(report)
    wrong = padiff.compare(tmp_path / "one", tmp_path / "wrong")
    assert [one.candidate.path for one in wrong.sources] == ["norm"], str(wrong)


class Residual(nn.Module):
    """Blocks under automatic casts on a stream of float32, one of which may scale what is inside of it otherwise."""

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(32) for _ in range(3))
        self.ups, self.downs = (nn.ModuleList(nn.Linear(32, 32) for _ in range(3)) for _ in range(2))
        self.scale = scale

    def forward(self, x: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            for index, (norm, up, down) in enumerate(zip(self.norms, self.ups, self.downs, strict=True)):
                x = x + down(torch.tanh(up(norm(x)) * (self.scale if index == 1 else 1.0)))
        return x


def test_what_stands_behind_casts_is_not_excused_by_them(tmp_path: Path) -> None:
    """What is 3 % more inside of a block was called rounding of bfloat16 all the way to the outputs, and passed."""
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((16, 32), dtype="float32"))
    sides = {"one": Residual(), "other": Residual(), "wrong": Residual(1.03)}
    for name, model in sides.items():
        model.load_state_dict(sides["one"].state_dict())
        with padiff.record(model, tmp_path / name) as recorder:
            loss = (model(x) ** 2).mean()
            loss.backward()
            recorder.step(loss)
    assert padiff.compare(tmp_path / "one", tmp_path / "other").aligned
    assert not padiff.compare(tmp_path / "one", tmp_path / "wrong").aligned


def test_graphs_of_cuda_are_refused_in_words(cuda: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    model = nn.Linear(3, 2)
    with padiff.record(model, tmp_path / "run") as recorder:
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
        with pytest.raises(padiff.UnwatchableModel, match=r"CUDA graph is captured.*\nHint: "):
            model(torch.ones(1, 3))
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
        model(torch.ones(1, 3))
        recorder.step()
    graphed = nn.Linear(3, 2)

    def run(x: Any) -> Any:
        return x

    run.__module__ = "torch.cuda.graphs"
    graphed.forward = run  # type: ignore[method-assign]
    with pytest.raises(padiff.UnwatchableModel, match="make_graphed_callables"):
        padiff.diff(model, graphed, (np.ones((1, 3), "float32"),))


def test_a_model_of_inference_tensors_tells_its_own_error() -> None:
    with torch.inference_mode():
        model = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4))
    with pytest.raises(padiff.ForwardError, match="Inference tensors cannot be saved for backward"):
        padiff.diff(nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4)), model, (np.ones((1, 3), "float32"),))


def test_the_check_of_devices_runs_without_one_too() -> None:
    line = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "tests.versions.check_device",
        "--device",
        "cpu",
        "--only",
        ": ln_eps",
    ]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith("5 of 5 as expected")
