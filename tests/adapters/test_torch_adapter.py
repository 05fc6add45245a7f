"""Hold the PyTorch adapter to the interface, and to what is PyTorch's own."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.utils.checkpoint import checkpoint

import padiff
from padiff.errors import InputError, LiftError, UnwatchableModel
from padiff.testing import AdapterTests, Log
from padiff_torch.adapter import TorchAdapter

ADAPTER = TorchAdapter()
DTYPES = (
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128 bfloat16 "
    "float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu"
)
"""Older versions lack some."""


class TestTorch(AdapterTests):
    """Run the suite that specifies the interface."""

    name = "torch"
    dtypes = tuple(name for name in DTYPES.split() if hasattr(torch, name))
    later: ClassVar[dict[str, str]] = {"torch.nn.modules.normalization.RMSNorm": "2.4"}
    accelerator = "cuda:0" if torch.cuda.is_available() else None

    def linear(self, n_in: int, n_out: int) -> Any:
        return nn.Linear(n_in, n_out)

    def module(self, forward: Callable[..., Any], **children: Any) -> Any:
        made = type("Made", (nn.Module,), {"forward": forward})()
        for name, child in children.items():
            setattr(made, name, child)
        return made

    def examples(self) -> Iterable[Any]:
        return [
            nn.Linear(2, 3, bias=False),
            nn.Conv1d(2, 2, 3, padding="same"),
            nn.Conv2d(2, 2, 3, padding=(1, 2)),
            nn.ConvTranspose2d(2, 3, 3, output_padding=1, stride=2),
            nn.Embedding(3, 2, padding_idx=-1),
            nn.GroupNorm(1, 2),
            nn.InstanceNorm2d(2, affine=True, track_running_stats=True),
            nn.LSTM(2, 4, 2, bidirectional=True, proj_size=3),
            nn.RNN(2, 3, bias=False),
            nn.MultiheadAttention(4, 2, add_bias_kv=True),
            nn.MultiheadAttention(4, 2, kdim=3, vdim=5, bias=False),
            nn.TransformerEncoderLayer(4, 2, 4, activation="gelu"),
            nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 4, batch_first=True), 1),
            nn.TransformerDecoder(nn.TransformerDecoderLayer(4, 2, 4), 1),
            nn.Transformer(4, 2, 1, 1, 4, batch_first=True),
            nn.AdaptiveAvgPool2d((None, 1)),
            nn.ZeroPad2d((1, 2, 3, 4)),
            nn.Upsample(scale_factor=2, mode="bilinear"),
            nn.UpsamplingNearest2d(size=3),
        ]

    def add_in_place(self, tensor: Any, number: float) -> None:
        tensor.add_(number)

    def batch_norm(self, features: int) -> Any:
        return nn.BatchNorm1d(features)

    def set_training(self, module: Any, training: bool) -> None:
        module.train(training)

    def dropout(self, p: float) -> Any:
        return nn.Dropout(p)

    def freeze(self, parameter: Any) -> None:
        parameter.requires_grad_(False)

    def sgd(self, model: Any, lr: float) -> Any:
        return torch.optim.SGD(model.parameters(), lr=lr)

    def recomputed(self, module: Any, x: Any) -> Any:
        return checkpoint(module, x, use_reentrant=False)

    def rectified(self, tensor: Any) -> Any:
        return nn.functional.relu(tensor)

    def compiled(self, model: Any) -> Any:
        return torch.compile(model)


class Net(nn.Module):
    """Hold what models have: an in-place, shared activation, buffers, a tied weight, nested outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.act = nn.ReLU(inplace=True)
        self.norm = nn.BatchNorm1d(4)
        self.tied = nn.Linear(4, 4, bias=False)
        self.tied.weight = self.first.weight
        self.register_buffer("scale", torch.full((4,), 2.0), persistent=False)
        self.register_buffer("slot", None)
        self.constant = torch.full((4,), 0.5)
        self.cache = None

    def forward(self, x: Any) -> dict[str, Any]:
        hidden = self.act(self.first(x))
        hidden = self.norm(hidden) * self.scale + self.constant
        self.cache = hidden
        return {"out": self.tied(self.act(hidden)), "more": (hidden, None)}


@pytest.fixture
def net() -> Any:
    torch.manual_seed(0)
    return Net()


def inputs(*shape: int) -> Any:
    return ADAPTER.from_numpy(np.random.default_rng(0).standard_normal(shape or (3, 4)).astype("float32"))


def total(output: Any) -> list[tuple[Any, Any]]:
    return [(output["out"].sum(), None)]


def bits(model: Any) -> dict[str, bytes]:
    return {path: p.view().tobytes() for path, p in ADAPTER.wrap(model).parameters().items()}


# Tensors


@pytest.mark.parametrize(
    "native",
    [
        torch.arange(6.0).reshape(2, 3).T,
        torch.tensor([1 + 2j, 3 - 4j]).conj(),
        torch.tensor([1 + 2j, 3 - 4j]).conj().imag,
        torch.eye(2).to_sparse(),
        torch.ones(2, requires_grad=True) * 2,
        torch.arange(6, dtype=torch.bfloat16).reshape(2, 3).T,
        torch.zeros(2, 3, 4, 4).contiguous(memory_format=torch.channels_last),
    ],
    ids=["transposed", "conjugate", "negative", "sparse", "in a graph", "bfloat16", "channels last"],
)
def test_awkward_tensors_become_arrays(native: Any) -> None:
    tensor = ADAPTER.tensor(native)
    plain = (native.detach().to_dense() if native.is_sparse else native.detach()).resolve_conj().resolve_neg()
    np.testing.assert_array_equal(tensor.numpy().astype("complex128"), np.array(plain.tolist()))
    assert tensor.numpy().flags.c_contiguous
    assert tensor.view().shape == tensor.shape == tuple(native.shape)


def test_strided_tensors_in_a_graph_are_writable_and_sparse_ones_are_not() -> None:
    tensor = ADAPTER.tensor(torch.ones(3, 2, dtype=torch.bfloat16).T.requires_grad_() * 1)
    tensor.writable()[0, 1] = 5
    assert tensor.native.tolist() == [[1, 5, 1], [1, 1, 1]]
    assert ADAPTER.tensor(torch.eye(2).to_sparse()).writable() is None


def test_a_part_of_a_tensor_reaches_its_own_memory_alone() -> None:
    whole = torch.zeros(4, 3)
    start = whole.data_ptr()
    assert ADAPTER.tensor(whole[1:3]).extent() == (start + 12, start + 36)
    assert ADAPTER.tensor(whole[:, 1]).extent() == (start + 4, start + 44)
    assert ADAPTER.tensor(whole[:0]).extent() is None
    assert ADAPTER.tensor(torch.eye(2).to_sparse()).extent() is None


def test_what_was_read_can_be_freed() -> None:
    """FSDP frees what it gathered; torch refused, and the script failed."""
    tensor = torch.ones(3)
    held = ADAPTER.tensor(tensor).view()
    tensor.mul_(2)
    assert (held == 2).all()
    tensor.untyped_storage().resize_(0)
    assert ADAPTER.tensor(tensor).writable() is None  # which read what is not there


def test_inference_tensors_have_version_zero() -> None:
    with torch.inference_mode():
        assert ADAPTER.tensor(torch.zeros(2).add_(1)).version == 0


def test_meta_and_unknown_dtypes_are_named() -> None:
    with pytest.raises(InputError, match="meta device"):
        ADAPTER.tensor(torch.empty(2, device="meta")).numpy()
    with pytest.raises(InputError, match="datetime64"):
        ADAPTER.from_numpy(np.array(["2024-01-01"], "datetime64[D]"))


def test_a_tensor_without_values_is_no_zeros() -> None:
    """Two models of tensors that only stand for values, or whose values were freed, were aligned."""
    with FakeTensorMode():
        fake = torch.ones(2, 3)
    with pytest.raises(InputError, match=r"FakeTensor of shape \(2, 3\) has no values"):
        ADAPTER.tensor(fake).numpy()
    freed = torch.ones(2, 3)
    freed.untyped_storage().resize_(0)
    with pytest.raises(InputError, match=r"Tensor of shape \(2, 3\) has no values"):
        ADAPTER.tensor(freed).numpy()


def test_convert_copies_and_detaches() -> None:
    given = torch.ones(2, requires_grad=True) * 2
    got = ADAPTER.convert(given, device="cpu", differentiable=True)
    assert got.is_leaf
    assert got.requires_grad
    assert got.data_ptr() != given.data_ptr()


def test_sparse_gradients_read_as_dense() -> None:
    table = nn.Embedding(4, 2, sparse=True)
    model = ADAPTER.wrap(table)
    model.run((torch.tensor([1]),), {}, lambda output: [(output.sum(), None)])
    np.testing.assert_array_equal(model.parameters()["weight"].gradient(), [[0, 0], [1, 1], [0, 0], [0, 0]])


def test_swapped_keeps_dtype_and_memory_format() -> None:
    image = torch.zeros(2, 3, 4, 4, dtype=torch.bfloat16).contiguous(memory_format=torch.channels_last)
    swapped = ADAPTER.tensor(image).swapped(np.ones((2, 3, 4, 4)))
    assert swapped.dtype is torch.bfloat16
    assert swapped.stride() == image.stride()


def test_a_change_through_another_view_does_not_lose_a_gradient() -> None:
    """A linear layer gives a view of its product; DeBERTa scales its positions through another."""
    seen: list[Any] = []
    output = nn.Linear(4, 4)(torch.ones(2, 3, 4))
    hook = ADAPTER.tensor(output).on_gradient(lambda gradient: seen.append(gradient.numpy()))
    heads = output.view(2, 3, 2, 2)
    heads /= 2
    heads.sum().backward()
    hook.close()
    (gradient,) = seen
    np.testing.assert_array_equal(gradient, np.full((2, 3, 4), 0.5))


# Watching


def test_the_users_own_hooks_run_before_ours(net: Any) -> None:
    net.first.register_forward_pre_hook(lambda module, args: (args[0] * 0,))
    net.first.register_forward_hook(lambda module, args, output: output + 100)
    model, log = ADAPTER.wrap(net), Log()
    with model.attach(log):
        model.run((inputs(),), {})
    assert not log.inputs["first"][0][0].any()
    assert (log.outputs["first"] > 50).all()


def test_a_script_that_compiles_its_model_is_recorded(tmp_path: Path) -> None:
    """torch.compile traced padiff's own hooks, and failed in words of its own."""
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    compiled = torch.compile(net, backend="eager")
    for name, called in (("a", net), ("b", compiled)):
        net.zero_grad()
        with padiff.record(net, tmp_path / name) as recorder:
            called(torch.ones(2, 4)).pow(2).mean().backward()
            recorder.step()
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert report.aligned, str(report)
    assert len(report.calls) == 3


class Shortcut(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(4), nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor, factor: float = 1.0) -> torch.Tensor:
        return x + factor * self.down(nn.functional.gelu(self.up(self.norm(x))))


class Shortcuts(nn.Module):
    def __init__(self, number: int) -> None:
        super().__init__()
        self.first, self.one, self.two = nn.Linear(3, 4), Shortcut(), Shortcut()
        self.norm, self.head, self.number = nn.LayerNorm(4), nn.Linear(4, 2), number

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.two(self.one(self.first(x)), 1.01 if self.number == 2 else 1.0)
        return self.head(self.norm(torch.cat([x[:2].detach(), x[2:]]) if self.number == 3 else x))


def test_many_models_that_a_script_compiles_give_what_they_give(tmp_path: Path) -> None:
    """Beyond torch.compile's limit of recompilations models that were watched gave something else, 0.56 off."""
    x = torch.randn(4, 3)
    for number in range(7):
        net = Shortcuts(number)
        expected, compiled = net(x), torch.compile(net, backend="eager")
        with padiff.record(net, tmp_path / str(number)) as recorder:
            for _ in range(2):
                net.zero_grad()
                given = compiled(x)
                given.pow(2).mean().backward()
                recorder.step()
                assert torch.equal(given, expected), number


@pytest.mark.parametrize("where", ["module", "parameter", "child", "gradient"])
def test_hooks_of_one_side_are_told_at_the_source(where: str, tmp_path: Path) -> None:
    """A gradient that a script's hook halves, or an output that it doubles, had no reason that a report told."""
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    other = copy.deepcopy(net)
    if where == "parameter":
        other[0].weight.register_hook(lambda gradient: gradient / 2)
    elif where == "gradient":
        other[1].register_full_backward_hook(lambda _, sent, __: (sent[0] / 2,))
    elif where == "module":
        other[0].register_forward_hook(lambda *call: 2 * call[-1])
    else:
        other[0].register_forward_pre_hook(lambda _, given: (2 * given[0],))
    other[1].register_forward_hook(lambda *_: None)  # which changes nothing
    for name, model in zip("ab", (net, other), strict=True):
        with padiff.record(model, tmp_path / name) as recorder:
            model(torch.ones(2, 4)).pow(2).mean().backward()
            recorder.step()
    reports = [padiff.compare(tmp_path / "a", tmp_path / "b")]
    if where != "gradient":
        reports.append(padiff.diff(net, other, (torch.ones(2, 4),)))
    for report in reports:
        (source,) = report.sources
        (said,) = (one for one in source.evidence if one.kind == "hooks")
        assert (said.figures["module"], said.figures["reference"]) == ("01"[where == "gradient"], ()), str(report)
        assert "test_torch_adapter.py:" in said


def test_calls_recomputed_by_reentrant_checkpointing_are_not_reported() -> None:
    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(2, 2)

        def forward(self, x: Any) -> Any:
            return checkpoint(self.inner, x, use_reentrant=True)

    model, log = ADAPTER.wrap(Checkpointed()), Log()
    with model.attach(log):
        model.run((torch.ones(1, 2, requires_grad=True),), {}, lambda output: [(output.sum(), None)])
    assert log.calls == ["", "inner"]
    assert model.parameters()["inner.weight"].gradient() is not None


@pytest.mark.parametrize("frozen", [False, True])
def test_the_fused_inference_path_does_not_hide_calls(frozen: bool) -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2).eval().requires_grad_(not frozen)
    mask = torch.tensor([[False] * 4, [False, False, True, True]])
    model, log = ADAPTER.wrap(encoder), Log()
    plain = model.run((inputs(2, 4, 8),), {"src_key_padding_mask": mask})
    with model.attach(log):
        watched = model.run((inputs(2, 4, 8),), {"src_key_padding_mask": mask})
    assert torch.equal(plain, watched)
    assert set(log.calls) >= {"layers.1.self_attn", "layers.1.linear2", "layers.0.norm1"}
    assert not log.outputs["layers.0.norm1"].is_nested
    mha = getattr(torch.backends, "mha", None)  # torch 2.1 has no switch
    assert mha is None or mha.get_fastpath_enabled()


def compiled_inside(net: Any) -> Any:
    net.first.compile()
    return net


def compiled_forward(net: Any) -> Any:
    net.first.forward = torch.compile(net.first.forward)
    return net


def scripted(net: Any) -> Any:
    net.first = torch.jit.script(net.first)
    return net


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (torch.compile, "_orig_mod"),
        (compiled_inside, "'first'.*compile"),
        (compiled_forward, "'first'.*forward compiled"),
        (scripted, "'first'.*TorchScript"),
        (lambda net: net.forward, "not a torch.nn.Module"),
    ],
    ids=["compiled", "compiled inside", "compiled forward", "scripted", "function"],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_models_that_would_ignore_hooks_are_refused(net: Any, make: Any, words: str) -> None:
    with pytest.raises(UnwatchableModel, match=f"(?s){words}.*Hint|Hint.*{words}"):
        ADAPTER.wrap(make(net))


def test_traced_graphs_are_watched() -> None:
    model, log = ADAPTER.wrap(torch.fx.symbolic_trace(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))), Log()
    with model.attach(log):
        model.run((inputs(),), {})
    assert log.calls == ["", "0", "1"]


# Running and coming back


def test_run_computes_gradients_under_the_users_inference_mode(net: Any) -> None:
    model = ADAPTER.wrap(net)
    with torch.inference_mode():
        model.run((inputs(),), {}, total)
    assert model.parameters()["first.weight"].gradient() is not None


def test_preserved_puts_back_objects_too(net: Any) -> None:
    gradient, mean, before = torch.ones(4), net.norm.running_mean, bits(net)
    net.first.bias.grad = gradient
    model = ADAPTER.wrap(net)
    with model.preserved():
        model.run((inputs(),), {}, total)
        net.norm.running_mean = torch.ones(4)
        net.slot = torch.ones(1)
        net.register_buffer("added", torch.ones(1))
    assert net.first.bias.grad is gradient
    assert net.norm.running_mean is mean
    assert bits(net) == before
    assert net.slot is None
    assert not hasattr(net, "added")
    assert net.cache is None


def test_preserved_copes_with_expanded_buffers() -> None:
    module = nn.Identity()
    module.register_buffer("rows", torch.arange(3.0).expand(2, 3))
    with ADAPTER.wrap(module).preserved():
        module.rows[:1].zero_()
    assert module.rows.tolist() == [[0, 1, 2]] * 2


def test_lifted_widens_attributes_and_puts_the_same_storages_back(net: Any) -> None:
    model = ADAPTER.wrap(net)
    alive = model.run((inputs(),), {})["out"].sum()
    gradient, before = torch.ones(4), bits(net)
    net.first.bias.grad = gradient
    places = {path: p.native.data_ptr() for path, p in model.parameters().items()}
    with model.lifted("float64"):
        output = model.run((inputs().double(),), {}, total)
        assert output["out"].dtype is output["more"][0].dtype is torch.float64
        assert net.tied.weight is net.first.weight
        assert model.parameters()["first.weight"].gradient().dtype == "float64"
        assert net.norm.num_batches_tracked.dtype is torch.int64
        assert net.constant.dtype is torch.float64
    assert bits(net) == before
    assert {path: p.native.data_ptr() for path, p in model.parameters().items()} == places
    assert net.first.bias.grad is gradient
    assert net.constant.dtype is torch.float32
    assert torch.get_default_dtype() is torch.float32
    alive.backward()
    assert net.first.weight.grad.dtype is torch.float32


def test_lifted_agrees_with_a_model_built_wide() -> None:
    torch.manual_seed(0)
    narrow = nn.LSTM(4, 4, 2, bidirectional=True, dtype=torch.bfloat16)
    wide = nn.LSTM(4, 4, 2, bidirectional=True).double()
    wide.load_state_dict(narrow.state_dict())
    model, x = ADAPTER.wrap(narrow), inputs(5, 3, 4).double()
    with model.lifted("float64"):
        assert torch.equal(model.run((x,), {})[0], wide(x)[0])
    assert model.run((x.bfloat16(),), {})[0].dtype is torch.bfloat16


def test_lifted_says_what_cannot_be_lifted() -> None:
    with (
        pytest.raises(LiftError, match=r"weight.*not initialised"),
        ADAPTER.wrap(nn.LazyLinear(2)).lifted("float64"),
    ):
        pass
    assert torch.get_default_dtype() is torch.float32


# Parameters


def test_parameters_name_every_path_of_a_tied_weight(net: Any) -> None:
    found = ADAPTER.wrap(net).parameters()
    assert found["first.weight"].paths == ("first.weight", "tied.weight")
    assert "tied.weight" not in found
    assert {path for path, p in found.items() if p.buffer} == {
        "scale",
        "norm.running_mean",
        "norm.running_var",
        "norm.num_batches_tracked",
    }
    assert not found["scale"].trainable


def test_lazy_parameters_ask_for_a_first_run() -> None:
    native = nn.LazyLinear(2)
    model = ADAPTER.wrap(native)
    with pytest.raises(InputError, match="Hint: call the model once"):
        _ = model.parameters()["weight"].shape
    with model.preserved():
        model.run((inputs(),), {})
    assert model.parameters()["weight"].shape == (2, 4)
    assert (type(native), native.in_features) == (nn.Linear, 4)


# The rest


def test_optimizer_settings_have_common_names() -> None:
    parameter, other = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))
    groups = [{"params": [parameter]}, {"params": [other], "lr": torch.tensor(0.5)}]
    found = ADAPTER.optimizer_settings(torch.optim.AdamW(groups, lr=0.1, betas=(0.8, 0.9), amsgrad=True))
    assert found["class"] == "adamw"
    assert {k: found[k] for k in ("lr", "beta1", "beta2", "eps", "weight_decay", "amsgrad", "group1.lr")} == {
        "lr": 0.1,
        "beta1": 0.8,
        "beta2": 0.9,
        "eps": 1e-8,
        "weight_decay": 0.01,
        "amsgrad": True,
        "group1.lr": 0.5,
    }


class Plain(torch.optim.Optimizer):
    """An optimizer of a script's own, with whatever it holds in its groups."""

    def __init__(self, parameters: Any, lr: float, **rest: Any) -> None:
        super().__init__(parameters, {"lr": lr, **rest})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.sub_(group["lr"] * parameter.grad)


@pytest.mark.parametrize(
    ("ours", "theirs", "told"),
    [
        ({"betas": (0.98, 0.92, 0.99)}, {"betas": (0.98, 0.9, 0.99)}, ["beta2"]),  # Adan's, and CAME's
        ({"betas": 0.9}, {"betas": 0.8}, ["betas"]),
        ({"betas": None}, {"betas": None}, []),
        ({"eps": (1e-30, 1e-3)}, {"eps": (1e-30, 1e-2)}, ["eps[1]"]),  # Adafactor's
        ({"scales": torch.ones(3)}, {"scales": torch.ones(3)}, []),
        ({"limit": float("inf")}, {"limit": float("inf")}, []),
        ({"rule": object()}, {"rule": object()}, []),
    ],
)
def test_whatever_an_optimizer_holds_is_recorded(tmp_path: Path, ours: Any, theirs: Any, told: list[str]) -> None:
    for folder, held in (("a", ours), ("b", theirs)):
        torch.manual_seed(0)
        model = nn.Linear(3, 3)
        optimizer = Plain(model.parameters(), 0.1, **held)
        with padiff.record(model, tmp_path / folder) as recorder:
            loss = model(torch.ones(2, 3)).square().mean()
            loss.backward()
            optimizer.step()
            recorder.step(loss)
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert report.aligned, report
    assert [note.data["name"] for note in report.notes if note.kind == "optimizer_setting"] == told


def test_what_only_passes_calls_on_is_machinery() -> None:
    assert torch.nn.modules.module.__file__.startswith(ADAPTER.machinery)
    assert torch.utils.checkpoint.__file__.startswith(ADAPTER.machinery)


# The table


def settings(native: Any) -> dict[str, Any]:
    return {name: setting.value(native) for name, setting in ADAPTER.rule(native).settings.items()}


@pytest.mark.parametrize(
    ("native", "expected"),
    [
        (nn.Conv2d(2, 2, 3, padding=(1, 2), dilation=2), {"padding": ((1, 1), (2, 2)), "dilation": (2, 2)}),
        (nn.Conv1d(2, 2, 3, padding="same"), {"padding": ((1, 1),), "stride": (1,)}),
        (nn.MaxPool2d((2, 3)), {"kernel_size": (2, 3), "stride": (2, 3), "padding": ((0, 0), (0, 0))}),
        (nn.ZeroPad2d((1, 2, 3, 4)), {"padding": ((3, 4), (1, 2)), "mode": "constant", "value": 0}),
        (nn.BatchNorm1d(2).eval(), {"training": False, "momentum": 0.1}),
        (nn.BatchNorm1d(2, track_running_stats=False).eval(), {"training": True, "track": False}),
        (nn.Upsample(scale_factor=2), {"scale": (2.0, 2.0), "size": None, "align_corners": False}),
        *((cls(2), {"eps": float(np.finfo("float32").eps)}) for cls in filter(None, [getattr(nn, "RMSNorm", None)])),
        (nn.TransformerEncoderLayer(4, 2, 4, activation="gelu"), {"activation": "gelu", "norm_first": False}),
        (nn.TransformerEncoderLayer(4, 2, 4, activation=nn.GELU("tanh")), {"activation": "gelu_tanh"}),
        (nn.ReLU6(), {}),
        (nn.Dropout2d(0.3), {"p": 0.3, "axis": "channel", "mode": "upscale_in_train", "training": True}),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_settings_are_canonical(native: Any, expected: dict[str, Any]) -> None:
    found = settings(native)
    assert {name: found[name] for name in expected} == expected


def test_relu6_is_no_hardtanh_and_subclasses_inherit() -> None:
    class Mine(nn.Linear):
        pass

    assert ADAPTER.rule(nn.ReLU6()).kind == "relu6"
    assert ADAPTER.rule(Mine(1, 1)).kind == "linear"
    assert ADAPTER.rule(Net()) is None


def test_attentions_parts_are_its_projections() -> None:
    native = nn.MultiheadAttention(4, 2)
    units = ADAPTER.rule(native).units_of(native)
    packed = native.in_proj_weight.detach().numpy()
    np.testing.assert_array_equal(units["k"].roles["weight"].read(packed), packed[4:8])


def test_copies_of_llamas_norm_are_known_by_habit_and_gemmas_are_not() -> None:
    class SomeRMSNorm(nn.Module):
        def __init__(self, eps: str) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2))
            setattr(self, eps, 1e-6)

    assert settings(SomeRMSNorm("variance_epsilon")) == {"eps": 1e-6}
    assert ADAPTER.rule(SomeRMSNorm("eps")) is None


def test_third_party_classes_have_the_right_layout() -> None:
    transformers = pytest.importorskip("transformers.pytorch_utils")
    native = transformers.Conv1D(3, 2)
    unit = ADAPTER.rule(native).units_of(native)[""]
    assert unit.kind == "linear"
    assert unit.roles["weight"].read(native.weight.detach().numpy()).shape == (3, 2)


class _NormedColumns(nn.Module):
    """A norm over images of one column, laid out either way; at the end of the model, or inside of it."""

    def __init__(self, contiguous: bool, ends: bool) -> None:
        super().__init__()
        self.lin, self.bn, self.contiguous, self.ends = nn.Linear(6, 8), nn.BatchNorm2d(8), contiguous, ends

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.lin(x)
        image = x.reshape(*x.shape, 1).permute(0, 2, 1, 3)
        y = self.bn(image.contiguous() if self.contiguous else image)
        return y if self.ends else 2 * y.permute(0, 2, 1, 3)


@pytest.mark.parametrize("ends", [True, False])
@pytest.mark.parametrize("contiguous", [True, False])
def test_gradients_are_handed_in_in_the_layout_that_the_model_has(contiguous: bool, ends: bool) -> None:
    """Batch norm's backward gave other values for a mixture of layouts: a right port was called wrong."""
    x = np.random.default_rng(0).standard_normal((2, 5, 6)).astype(np.float32)
    report = padiff.diff(_NormedColumns(contiguous, ends), _NormedColumns(not contiguous, ends), x)
    assert report.aligned, str(report)


def test_a_norm_that_averages_over_all_batches_is_told() -> None:
    given = np.random.default_rng(0).standard_normal((8, 4), dtype=np.float32)
    ours, theirs = (nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6, momentum=one)) for one in (None, 0.1))
    report = padiff.diff(ours, theirs, (given,))
    assert {source.candidate.path for source in report.sources} == {"1"}, str(report)
    assert "momentum: None in the reference, 0.1 in the candidate" in str(report)
