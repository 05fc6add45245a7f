"""Hold the PyTorch adapter to the interface, on real models and through the interface alone."""

from __future__ import annotations

import random
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from torch import nn

from padiff.adapter import Listener, Module
from padiff.errors import InputError, LiftError, UnwatchableModel
from padiff.layers import CATALOGUE
from padiff_torch.adapter import TorchAdapter

ADAPTER = TorchAdapter()


class Recorder(Listener):
    """Write down every call, and hand out what the test wants put in."""

    def __init__(self, **outputs: Any) -> None:
        self.events: list[tuple[str, str]] = []
        self.modules: list[Module] = []
        self.inputs: dict[str, Any] = {}
        self.outputs: dict[str, Any] = {}
        self.swaps = outputs

    def enter(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.events.append(("enter", module.path))
        self.modules.append(module)
        self.inputs[module.path] = (args, kwargs)

    def leave(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        self.events.append(("leave", module.path))
        self.outputs[module.path] = output
        return self.swaps.get(module.path)

    @property
    def calls(self) -> list[str]:
        return [path for event, path in self.events if event == "enter"]


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

    def forward(self, x: Any, *, shift: float = 0.0) -> dict[str, Any]:
        hidden = self.act(self.first(x))
        hidden = self.norm(hidden) * self.scale + self.constant + shift
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


DTYPES = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128"
SMALL = "bfloat16 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz"


@pytest.mark.parametrize("name", [*DTYPES.split(), *SMALL.split()])
def test_every_dtype_crosses_bit_for_bit(name: str) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    array = np.arange(6).reshape(2, 3).astype(dtype)
    tensor = ADAPTER.tensor(ADAPTER.from_numpy(array))
    assert (tensor.dtype, tensor.shape, tensor.device) == (name, (2, 3), "cpu")
    assert tensor.numpy().dtype == tensor.view().dtype == dtype
    assert tensor.numpy().tobytes() == tensor.view().tobytes() == array.tobytes()


@pytest.mark.parametrize(
    "array",
    [
        np.array(3.5, "float32"),
        np.zeros((0, 4), "float32"),
        np.arange(4, dtype=">f4"),
        np.arange(6, dtype="float32").reshape(2, 3).T,
        np.arange(4, dtype="float32")[::-1],
        np.frombuffer(np.arange(4, dtype="float32").tobytes(), "float32"),
    ],
    ids=["0-d", "empty", "big-endian", "transposed", "reversed", "read-only"],
)
def test_awkward_arrays_become_tensors(array: Any) -> None:
    native = ADAPTER.from_numpy(array)
    np.testing.assert_array_equal(ADAPTER.tensor(native).numpy(), array)
    native.zero_()
    assert array.size == 0 or array.any(), "the tensor shares the array's memory"


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


def test_a_snapshot_outlives_changes_and_a_view_follows_them() -> None:
    native = torch.zeros(3)
    tensor = ADAPTER.tensor(native)
    snapshot, view, version = tensor.numpy(), tensor.view(), tensor.version
    native.add_(1)
    assert not snapshot.any()
    assert view.all()
    assert tensor.version > version


def test_what_is_writable_reaches_the_tensor_and_autograd_does_not_notice() -> None:
    native = torch.ones(3, 2, dtype=torch.bfloat16).T.requires_grad_()
    tensor = ADAPTER.tensor(native * 1)
    version = tensor.version
    tensor.writable()[0, 1] = 5
    assert tensor.native.tolist() == [[1, 5, 1], [1, 1, 1]]
    assert tensor.version == version
    assert ADAPTER.tensor(torch.eye(2).to_sparse()).writable() is None


def test_inference_tensors_have_version_zero() -> None:
    with torch.inference_mode():
        assert ADAPTER.tensor(torch.zeros(2).add_(1)).version == 0


def test_meta_and_unknown_dtypes_are_named() -> None:
    with pytest.raises(InputError, match="meta device"):
        ADAPTER.tensor(torch.empty(2, device="meta")).numpy()
    with pytest.raises(InputError, match="datetime64"):
        ADAPTER.from_numpy(np.array(["2024-01-01"], "datetime64[D]"))


def test_convert_copies_and_detaches() -> None:
    given = torch.ones(2, requires_grad=True) * 2
    got = ADAPTER.convert(given, device="cpu", differentiable=True)
    assert got.is_leaf
    assert got.requires_grad
    assert got.data_ptr() != given.data_ptr()
    assert not ADAPTER.convert(np.arange(3), device="cpu", differentiable=True).requires_grad
    assert ADAPTER.convert("text", device="cpu") == "text"


def test_gradients_are_complete_and_survive_in_place_changes() -> None:
    x = ADAPTER.from_numpy(np.array([1.0, -1.0], "float32"), differentiable=True)
    hidden, seen = x * 3, []
    hook = ADAPTER.tensor(hidden).on_gradient(lambda gradient: seen.append(gradient.numpy()))
    branch = hidden * 10
    (hidden.relu_().sum() + branch.sum()).backward()
    np.testing.assert_array_equal(seen, [[11.0, 10.0]])
    hook.close()
    hook.close()


def test_a_gradient_can_be_replaced_and_a_closed_hook_is_silent() -> None:
    x = ADAPTER.from_numpy(np.ones(2, "float32"), differentiable=True)
    replaced, silent = x * 1, []
    ADAPTER.tensor(replaced).on_gradient(lambda gradient: gradient.native * 7)
    ADAPTER.tensor(replaced).on_gradient(silent.append).close()
    replaced.sum().backward()
    assert x.grad.tolist() == [7, 7]
    assert silent == []


def test_sparse_gradients_read_as_dense() -> None:
    table = nn.Embedding(4, 2, sparse=True)
    model = ADAPTER.wrap(table)
    model.run((torch.tensor([1]),), {}, lambda output: [(output.sum(), None)])
    np.testing.assert_array_equal(model.parameters()["weight"].gradient(), [[0, 0], [1, 1], [0, 0], [0, 0]])


# Swapping


def test_swapped_has_the_bits_and_the_gradient() -> None:
    x = ADAPTER.from_numpy(np.ones(3, "float32"), differentiable=True)
    values = np.array([np.nan, -0.0, 1e-45], "float32")
    swapped = ADAPTER.tensor(x * 5).swapped(values)
    assert ADAPTER.tensor(swapped).numpy().tobytes() == values.tobytes()
    (swapped.mul_(1.0) * torch.arange(3.0)).sum().backward()
    assert x.grad.tolist() == [0, 5, 10]
    assert values[2] == np.float32(1e-45), "the model's in-place change reached the recorded array"


def test_swapped_keeps_dtype_and_memory_format_and_refuses_other_shapes() -> None:
    image = torch.zeros(2, 3, 4, 4, dtype=torch.bfloat16).contiguous(memory_format=torch.channels_last)
    swapped = ADAPTER.tensor(image).swapped(np.ones((2, 3, 4, 4)))
    assert swapped.dtype is torch.bfloat16
    assert swapped.stride() == image.stride()
    assert not swapped.requires_grad
    with pytest.raises(ValueError, match=r"\(1,\)"):
        ADAPTER.tensor(torch.zeros(3)).swapped(np.ones(1, "float32"))


# Watching


def test_every_call_is_heard_in_order_with_its_own_module(net: Any) -> None:
    model, recorder = ADAPTER.wrap(net), Recorder()
    with model.attach(recorder):
        model.run((inputs(),), {"shift": 1.0})
    assert recorder.calls == ["", "first", "act", "norm", "act", "tied"]
    assert recorder.events[0] == ("enter", "")
    assert recorder.events[-1] == ("leave", "")
    assert recorder.inputs[""][1] == {"shift": 1.0}
    assert all(module is model.modules()[module.path] for module in recorder.modules)
    assert list(model.modules()) == [path for path, _ in net.named_modules()]


def test_a_closed_hook_leaves_nothing_and_two_listeners_hear_the_same(net: Any) -> None:
    model, one, two = ADAPTER.wrap(net), Recorder(), Recorder()
    with model.attach(one), model.attach(two):
        model.run((inputs(),), {})
    assert one.events == two.events
    hook = model.attach(one)
    hook.close()
    hook.close()
    model.run((inputs(),), {})
    assert one.events == two.events
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in net.modules())


def test_watching_changes_no_bit(net: Any) -> None:
    model = ADAPTER.wrap(net)
    with model.preserved():
        plain = model.run((inputs(),), {}, total)["out"].detach().clone()
        gradient = model.parameters()["first.weight"].gradient().copy()
    with model.attach(Recorder()), model.preserved():
        assert torch.equal(model.run((inputs(),), {}, total)["out"], plain)
        np.testing.assert_array_equal(model.parameters()["first.weight"].gradient(), gradient)


def test_a_listener_replaces_outputs_and_inputs() -> None:
    class Doubler(Recorder):
        def enter(self, module: Module, args: Any, kwargs: Any) -> Any:
            return ((args[0] * 2,), kwargs) if module.path == "0" else None

    model = ADAPTER.wrap(nn.Sequential(nn.Identity(), nn.Identity()))
    with model.attach(Doubler()):
        assert model.run((torch.ones(1),), {}).tolist() == [2]
    with model.attach(Recorder(**{"1": torch.zeros(1)})):
        assert model.run((torch.ones(1),), {}).tolist() == [0]


def test_the_users_own_hooks_run_before_ours(net: Any) -> None:
    net.first.register_forward_pre_hook(lambda module, args: (args[0] * 0,))
    net.first.register_forward_hook(lambda module, args, output: output + 100)
    model, recorder = ADAPTER.wrap(net), Recorder()
    with model.attach(recorder):
        model.run((inputs(),), {})
    assert not recorder.inputs["first"][0][0].any()
    assert (recorder.outputs["first"] > 50).all()


@pytest.mark.parametrize("reentrant", [True, False])
def test_recomputed_calls_are_not_reported(reentrant: bool) -> None:
    from torch.utils.checkpoint import checkpoint

    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(2, 2)

        def forward(self, x: Any) -> Any:
            return checkpoint(self.inner, x, use_reentrant=reentrant)

    model, recorder = ADAPTER.wrap(Checkpointed()), Recorder()
    with model.attach(recorder):
        model.run((torch.ones(1, 2, requires_grad=True),), {}, lambda output: [(output.sum(), None)])
    assert recorder.calls == ["", "inner"]
    assert model.parameters()["inner.weight"].gradient() is not None


@pytest.mark.parametrize("frozen", [False, True])
def test_the_fused_inference_path_does_not_hide_calls(frozen: bool) -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2).eval().requires_grad_(not frozen)
    mask = torch.tensor([[False] * 4, [False, False, True, True]])
    model, recorder = ADAPTER.wrap(encoder), Recorder()
    plain = model.run((inputs(2, 4, 8),), {"src_key_padding_mask": mask})
    with model.attach(recorder):
        watched = model.run((inputs(2, 4, 8),), {"src_key_padding_mask": mask})
    assert torch.equal(plain, watched)
    assert set(recorder.calls) >= {"layers.1.self_attn", "layers.1.linear2", "layers.0.norm1"}
    assert not recorder.outputs["layers.0.norm1"].is_nested
    assert torch.backends.mha.get_fastpath_enabled()


def compiled(net: Any) -> Any:
    return torch.compile(net)


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
        (compiled, "_orig_mod"),
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
    model = ADAPTER.wrap(torch.fx.symbolic_trace(nn.Sequential(nn.Linear(4, 4), nn.ReLU())))
    recorder = Recorder()
    with model.attach(recorder):
        model.run((inputs(),), {})
    assert recorder.calls == ["", "0", "1"]


# Running and coming back


def test_run_computes_gradients_and_never_accumulates(net: Any) -> None:
    model = ADAPTER.wrap(net)
    x = ADAPTER.from_numpy(np.ones((3, 4), "float32"), differentiable=True)
    with torch.inference_mode():
        model.run((inputs(),), {}, total)
        first = model.parameters()["first.weight"].gradient().copy()
        model.run((inputs(),), {}, total)
    np.testing.assert_array_equal(model.parameters()["first.weight"].gradient(), first)
    model.run((x,), {}, lambda output: [(output["out"], torch.ones(3, 4)), (torch.ones(1), None)])
    assert x.grad is not None
    model.run((x,), {})
    assert model.parameters()["first.weight"].gradient() is None


def test_exceptions_of_the_model_come_out_unchanged(net: Any) -> None:
    error = RuntimeError("mine")

    def fail(*_: Any) -> None:
        raise error

    net.act.forward = fail
    model = ADAPTER.wrap(net)
    with pytest.raises(RuntimeError) as caught, model.attach(Recorder()):
        model.run((inputs(),), {})
    assert caught.value is error
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in net.modules())
    assert torch.backends.mha.get_fastpath_enabled()


@pytest.mark.parametrize("fails", [False, True])
def test_preserved_puts_everything_back(net: Any, fails: bool) -> None:
    gradient = torch.ones(4)
    net.first.bias.grad = gradient
    net.norm.weight.requires_grad_(False)
    net.tied.eval()
    before, mean = bits(net), net.norm.running_mean
    model = ADAPTER.wrap(net)
    try:
        with model.preserved():
            net.train()
            model.run((inputs(),), {}, total)
            net.norm.weight.requires_grad_(True)
            net.norm.running_mean = torch.ones(4)
            net.slot = torch.ones(1)
            net.register_buffer("added", torch.ones(1))
            if fails:
                raise KeyError
    except KeyError:
        assert fails
    assert net.first.bias.grad is gradient
    assert net.tied.weight.grad is None
    assert not net.norm.weight.requires_grad
    assert (net.training, net.tied.training) == (True, False)
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


def test_lifted_runs_wider_and_puts_the_same_storages_back(net: Any) -> None:
    gradient = torch.ones(4)
    net.first.bias.grad = gradient
    model = ADAPTER.wrap(net)
    alive = model.run((inputs(),), {})["out"].sum()
    net.first.bias.grad = gradient
    before = bits(net)
    places = {path: p.native.data_ptr() for path, p in model.parameters().items()}
    with model.lifted("float64"):
        output = model.run((inputs().double(),), {}, total)
        assert output["out"].dtype is output["more"][0].dtype is torch.float64
        assert model.parameters()["first.weight"].dtype == "float64"
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
    with pytest.raises(LiftError, match="int64"), ADAPTER.wrap(nn.Linear(1, 1)).lifted("int64"):
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
    assert found["first.weight"].trainable
    assert not found["scale"].trainable


def test_assign_reaches_the_optimizer_and_never_broadcasts(net: Any) -> None:
    weight = ADAPTER.wrap(net).parameters()["first.weight"]
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    place = weight.native.data_ptr()
    weight.assign(np.full((4, 4), 3.0))
    weight.set_gradient(np.ones((4, 4), "float32"))
    ADAPTER.step(optimizer)
    assert (weight.view() == 2).all()
    assert weight.native.data_ptr() == place
    assert weight.gradient() is None
    for refused in (weight.assign, weight.set_gradient):
        with pytest.raises(ValueError, match=r"first.weight.*\(4, 4\)"):
            refused(np.ones((1, 4), "float32"))


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


def test_seeded_repeats_and_puts_every_state_back() -> None:
    def draw() -> tuple[float, float, float]:
        return torch.rand(1).item(), float(np.random.rand()), random.random()

    states = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    with ADAPTER.seeded(7):
        first = draw()
    with ADAPTER.seeded(7):
        assert draw() == first
    with pytest.raises(ZeroDivisionError), ADAPTER.seeded(8):
        _ = draw()[0] / 0
    assert torch.equal(torch.get_rng_state(), states[0])
    assert (np.random.get_state()[1].tolist(), random.getstate()) == states[1:]


def test_optimizers_are_known() -> None:
    parameters = list(torch.nn.Linear(1, 1).parameters())
    assert ADAPTER.is_optimizer(torch.optim.SGD(parameters, lr=0.1))
    for other in (None, 1, parameters, torch.optim.SGD, lambda: None):
        assert not ADAPTER.is_optimizer(other)


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
    assert ADAPTER.optimizer_settings(lambda: None) == {}


def test_a_plain_callable_steps() -> None:
    steps: list[int] = []
    ADAPTER.step(lambda: steps.append(1))
    assert steps == [1]


def test_library_and_machinery_are_real_places() -> None:
    file = ADAPTER.wrap(nn.Linear(1, 1)).modules()[""].definition[0]
    assert file.startswith(ADAPTER.library)
    assert not file.startswith(ADAPTER.machinery)
    assert torch.nn.modules.module.__file__.startswith(ADAPTER.machinery)
    assert ADAPTER.environment()["torch"] == torch.__version__


# The table


EVERY = [
    nn.Linear(2, 2),
    nn.Bilinear(2, 3, 4),
    nn.Conv1d(2, 2, 3, padding="same"),
    nn.Conv2d(2, 2, 3, padding=(1, 2)),
    nn.Conv3d(2, 2, 3),
    nn.ConvTranspose2d(2, 3, 3, output_padding=1, stride=2),
    nn.Embedding(3, 2, padding_idx=-1),
    nn.BatchNorm2d(2),
    nn.LayerNorm(2),
    nn.GroupNorm(1, 2),
    nn.InstanceNorm2d(2, affine=True, track_running_stats=True),
    nn.RMSNorm(2),
    nn.LocalResponseNorm(2),
    nn.PReLU(),
    nn.LSTM(2, 4, 2, bidirectional=True, proj_size=3),
    nn.GRU(2, 3),
    nn.RNN(2, 3, bias=False),
    nn.LSTMCell(2, 3),
    nn.GRUCell(2, 3),
    nn.RNNCell(2, 3),
    nn.MultiheadAttention(4, 2, add_bias_kv=True),
    nn.MultiheadAttention(4, 2, kdim=3, vdim=5, bias=False),
    nn.TransformerEncoderLayer(4, 2, 4, activation="gelu"),
    nn.Transformer(4, 2, 1, 1, 4),
    nn.Dropout(),
    nn.Dropout2d(),
    nn.AlphaDropout(),
    nn.Identity(),
    nn.Flatten(),
    nn.MaxPool2d(2),
    nn.AvgPool1d(2),
    nn.AvgPool2d(2),
    nn.AdaptiveAvgPool2d((None, 1)),
    nn.AdaptiveMaxPool1d(2),
    nn.GELU(),
    nn.LeakyReLU(),
    nn.Hardtanh(),
    nn.Softplus(),
    nn.Softmax(dim=-1),
    nn.Softmax2d(),
    nn.GLU(),
    nn.ZeroPad2d((1, 2, 3, 4)),
    nn.ReflectionPad1d(1),
    nn.CircularPad2d(1),
    nn.ReplicationPad3d(1),
    nn.Upsample(scale_factor=2, mode="bilinear"),
    nn.UpsamplingNearest2d(size=3),
    nn.PixelShuffle(2),
    nn.ChannelShuffle(2),
    nn.Unfold(2),
    nn.CosineSimilarity(),
    nn.Sequential(),
]


@pytest.mark.parametrize("native", EVERY, ids=lambda native: type(native).__name__)
def test_the_table_speaks_the_catalogues_language(native: Any) -> None:
    model = ADAPTER.wrap(native)
    rule = ADAPTER.rule(native)
    assert rule is not None
    assert set(rule.settings) <= set(CATALOGUE[rule.kind].settings)
    for setting in rule.settings.values():
        hash(setting.value(native))
    parameters, covered = model.parameters(), set()
    for unit in rule.units_of(native).values():
        assert unit.kind is None or set(unit.roles) <= set(CATALOGUE[unit.kind].roles)
        for part in unit.roles.values():
            if part.parameter in parameters:
                part.read(parameters[part.parameter].view())
                covered.add(part.parameter)
    own = {path for path in parameters if "." not in path and path != "num_batches_tracked"}
    assert own <= covered


@pytest.mark.parametrize("name", sorted(set(TorchAdapter.table)))
def test_no_entry_names_an_unknown_kind_or_a_class_that_is_gone(name: str) -> None:
    rule = TorchAdapter.table[name]
    assert rule.kind in CATALOGUE
    assert set(rule.settings) <= set(CATALOGUE[rule.kind].settings)
    if name.startswith("torch."):
        module, cls = name.rsplit(".", 1)
        assert hasattr(__import__(module, fromlist=[cls]), cls)


def settings(native: Any) -> dict[str, Any]:
    return {name: setting.value(native) for name, setting in ADAPTER.rule(native).settings.items()}


@pytest.mark.parametrize(
    ("native", "expected"),
    [
        (nn.Conv2d(2, 2, 3, padding=(1, 2), dilation=2), {"padding": ((1, 1), (2, 2)), "dilation": (2, 2)}),
        (nn.Conv1d(2, 2, 3, padding="same"), {"padding": "same", "stride": (1,)}),
        (nn.MaxPool2d((2, 3)), {"kernel_size": (2, 3), "stride": (2, 3), "padding": ((0, 0), (0, 0))}),
        (nn.ZeroPad2d((1, 2, 3, 4)), {"padding": ((3, 4), (1, 2)), "mode": "constant", "value": 0}),
        (nn.BatchNorm1d(2).eval(), {"training": False, "momentum": 0.1}),
        (nn.BatchNorm1d(2, track_running_stats=False).eval(), {"training": True, "track": False}),
        (nn.Upsample(scale_factor=2), {"scale": (2.0, 2.0), "size": None, "align_corners": False}),
        (nn.RMSNorm(2), {"eps": float(np.finfo("float32").eps)}),
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
