"""Hold the Paddle adapter to the interface, and to what is Paddle's own."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import paddle
import pytest
import torch
from paddle import nn
from paddle.distributed.fleet.utils import recompute
from paddle.jit.dy2static.program_translator import ProgramTranslator

import padiff
from padiff.adapter import extent_of
from padiff.errors import LiftError, UnwatchableModel
from padiff.testing import AdapterTests, Log
from padiff_paddle.adapter import PaddleAdapter

ADAPTER = PaddleAdapter()

# What not every version that padiff works with has: tests of it run where it is there.
PROJECTED: dict[str, int] = {"proj_size": 3} if "proj_size" in inspect.signature(nn.LSTM.__init__).parameters else {}
SMALL = " float8_e4m3fn float8_e5m2" if hasattr(paddle, "float8_e4m3fn") else ""

_PARALLEL = "paddle.distributed.fleet.layers.mpu.mp_layers"


class TestPaddle(AdapterTests):
    """Run the suite that specifies the interface."""

    name = "paddle"
    dtypes = "bool int8 int16 int32 int64 uint8 float16 float32 float64 complex64 complex128 bfloat16" + SMALL
    later: ClassVar[dict[str, str]] = {"paddle.nn.layer.common.FeatureAlphaDropout": "3.0"}
    accelerator = "cuda:0" if paddle.device.cuda.device_count() else None
    unmakeable = dict.fromkeys(
        (
            f"{_PARALLEL}.ColumnParallelLinear",
            f"{_PARALLEL}.RowParallelLinear",
            f"{_PARALLEL}.VocabParallelEmbedding",
        ),
        "it takes the process groups of fleet",
    )

    def linear(self, n_in: int, n_out: int) -> Any:
        bias = paddle.ParamAttr(initializer=nn.initializer.Normal())
        return nn.Linear(n_in, n_out, bias_attr=bias)

    def module(self, forward: Callable[..., Any], **children: Any) -> Any:
        made = type("Made", (nn.Layer,), {"forward": forward})()
        for name, child in children.items():
            setattr(made, name, child)
        return made

    def examples(self) -> Iterable[Any]:
        return [
            nn.Linear(2, 3, bias_attr=False),
            nn.Conv1D(2, 2, 3, padding="SAME"),
            nn.Embedding(3, 2, padding_idx=-1),
            nn.LSTM(2, 4, 2, direction="bidirect", **PROJECTED),
            nn.GRU(2, 3, 2, time_major=True),
            nn.MultiHeadAttention(4, 2, kdim=3, vdim=5, bias_attr=False),
            nn.TransformerEncoderLayer(4, 2, 4, activation="gelu"),
            nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 4), 1),
            nn.TransformerDecoder(nn.TransformerDecoderLayer(4, 2, 4), 1),
            nn.Transformer(4, 2, 1, 1, 4),
        ]

    def add_in_place(self, tensor: Any, number: float) -> None:
        tensor.add_(paddle.full([], number, tensor.dtype))

    def batch_norm(self, features: int) -> Any:
        return nn.BatchNorm1D(features)

    def set_training(self, module: Any, training: bool) -> None:
        (module.train if training else module.eval)()

    def dropout(self, p: float) -> Any:
        return nn.Dropout(p)

    def freeze(self, parameter: Any) -> None:
        parameter.stop_gradient = True

    def sgd(self, model: Any, lr: float) -> Any:
        return paddle.optimizer.SGD(lr, parameters=model.parameters())

    def recomputed(self, module: Any, x: Any) -> Any:
        return recompute(module, x, use_reentrant=False)

    def rectified(self, tensor: Any) -> Any:
        return nn.functional.relu(tensor)

    def compiled(self, model: Any) -> Any:
        return paddle.jit.to_static(model, full_graph=True)


class Block(nn.Layer):
    """Two linear layers around a batch norm and a dropout; the second weight is used under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 3)
        self.norm = nn.BatchNorm1D(3)
        self.drop = nn.Dropout(0.5)
        self.again = self.first
        self.last = nn.Linear(3, 4)
        self.register_buffer("scale", paddle.full([4], 2.0))
        self.cached = [paddle.ones([4])]

    def forward(self, x: Any) -> Any:
        hidden = self.drop(self.norm(self.first(x)))
        return self.last(hidden) * self.scale * self.cached[0]


def leaf(array: Any) -> Any:
    return ADAPTER.from_numpy(np.asarray(array, np.float32), differentiable=True)


def rows(n: int = 5, width: int = 4) -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).standard_normal((n, width)).astype(np.float32)


def total(output: Any) -> list[tuple[Any, Any]]:
    return [(output.sum(), None)]


# Tensors


def test_a_strided_tensor_is_seen_without_a_copy() -> None:
    native = paddle.arange(6, dtype="float32").reshape([2, 3]).T
    tensor = ADAPTER.tensor(native)
    before = tensor.numpy()
    assert tensor.view().__array_interface__["data"][0] == native.data_ptr()
    native.add_(paddle.ones([3, 2]))
    assert before[0, 0] == 0.0
    assert tensor.view()[0, 0] == 1.0


@pytest.mark.parametrize("size", [2, 200])
def test_a_parameters_memory_is_its_own_though_small_ones_are_read_as_copies(size: int) -> None:
    layer = paddle.nn.Linear(size, size)
    start, end = ADAPTER.wrap(layer).parameters()["weight"].extent() or (0, 0)
    assert (start, end - start) == (layer.weight.data_ptr(), 4 * size * size)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_view_of_a_tensor_that_needs_a_gradient(dtype: str) -> None:
    native = paddle.ones([2, 2], dtype=dtype)
    native.stop_gradient = False
    assert ADAPTER.tensor(native).view().astype(np.float32).sum() == 4.0


def test_writable_is_the_memory_of_a_strided_tensor() -> None:
    tensor = ADAPTER.tensor(ADAPTER.from_numpy(np.zeros((2, 3), np.float32)).T)
    memory = tensor.writable()
    assert memory is not None
    assert memory.shape == (3, 2)
    assert tensor.extent() == extent_of(memory)
    memory[2, 1] = 1
    assert tensor.numpy()[2, 1] == 1


def test_a_part_of_a_tensor_reaches_its_own_memory_alone() -> None:
    whole = ADAPTER.from_numpy(np.zeros((4, 3), np.float32))
    start = whole.data_ptr()
    assert ADAPTER.tensor(whole[1:3]).extent() == (start + 12, start + 36)
    assert ADAPTER.tensor(whole[:, 1]).extent() == (start + 4, start + 44)
    assert ADAPTER.tensor(whole[:0]).extent() is None


def test_a_replaced_gradient_of_a_leaf_is_what_the_leaf_keeps() -> None:
    x = leaf([1.0, 1.0])
    seen: list[float] = []
    ADAPTER.tensor(x).on_gradient(lambda g: (seen.append(float(g.view()[0])), g.native * 2)[1])
    ((x * 3).sum() + (x * x).sum()).backward()
    assert seen == [5.0]
    assert x.grad.tolist() == [10.0, 10.0]


def test_swapped_keeps_a_narrow_dtype() -> None:
    swapped = ADAPTER.tensor(paddle.ones([2], dtype="bfloat16")).swapped(np.array([1.5, 2.5]))
    assert swapped.stop_gradient
    assert ADAPTER.tensor(swapped).dtype == "bfloat16"
    assert swapped.astype("float32").tolist() == [1.5, 2.5]


def test_sparse_gradient_comes_dense() -> None:
    model = ADAPTER.wrap(nn.Embedding(4, 2, sparse=True))
    model.run((paddle.to_tensor([1, 1, 3]),), {}, total)
    gradient = model.parameters()["weight"].gradient()
    assert gradient is not None
    assert gradient.tolist() == [[0, 0], [2, 2], [0, 0], [1, 1]]


def test_convert_detaches_and_keeps_integers_out_of_the_graph() -> None:
    own = paddle.ones([2])
    converted = ADAPTER.convert(own, device="cpu", differentiable=True)
    assert converted.data_ptr() != own.data_ptr()
    assert own.stop_gradient
    assert not converted.stop_gradient
    assert ADAPTER.convert(np.int64(3), device="cpu", differentiable=True).stop_gradient


# Running and coming back


def test_what_a_callback_must_not_return_is_named() -> None:
    x, model = leaf(rows(1, 2)), ADAPTER.wrap(nn.Linear(2, 2))
    with ADAPTER.tensor(x).on_gradient(lambda _: False), pytest.raises(TypeError, match="bool"):
        model.run((x,), {}, total)
    with pytest.raises(ValueError, match="matmul"):
        model.run((leaf(rows(1, 3)),), {}, total)


def test_calls_recomputed_by_reentrant_recompute_are_not_reported() -> None:
    class Saving(nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(2, 2)

        def forward(self, x: Any) -> Any:
            return recompute(self.inner, x, use_reentrant=True)

    model, log = ADAPTER.wrap(Saving()), Log()
    with model.attach(log):
        model.run((leaf(rows(1, 2)),), {}, total)
    assert log.calls == ["", "inner"]
    assert model.parameters()["inner.weight"].gradient() is not None


def test_preserved_puts_back_objects_too() -> None:
    native = Block()
    model = ADAPTER.wrap(native)
    native.first.bias.grad = paddle.full([3], 7.0)
    held, mean, scale = native.first.bias.grad, native.norm._mean, native.scale
    before = mean.numpy()
    with model.preserved():
        model.run((leaf(rows()),), {}, total)
        native.scale = native.scale * 3
        assert mean.numpy().tobytes() != before.tobytes()
    assert native.norm._mean is mean
    assert mean.numpy().tobytes() == before.tobytes()
    assert native.scale is scale
    assert scale.tolist() == [2.0] * 4
    assert native.first.bias.grad.data_ptr() == held.data_ptr()
    assert held.tolist() == [7.0] * 3


def test_preserved_takes_back_what_became_a_buffer() -> None:
    native = Block()
    native.first.cache = None
    plain = set(vars(native.first))
    with ADAPTER.wrap(native).preserved():
        native.first.cache = paddle.ones([2])  # to Paddle a buffer, from now on
        assert "cache" in native.first._buffers
    assert native.first.cache is None
    assert set(vars(native.first)) == plain
    assert not native.first._buffers
    assert not native.first._non_persistable_buffer_names_set


def test_lifted_widens_buffers_and_attributes_and_puts_the_storage_back() -> None:
    native = Block()
    model = ADAPTER.wrap(native)
    before = {path: (item.native.data_ptr(), item.view().tobytes()) for path, item in model.parameters().items()}

    def use() -> None:
        assert {item.dtype for item in model.parameters().values()} == {"float64"}
        output = model.run((ADAPTER.from_numpy(rows().astype(np.float64), differentiable=True),), {}, total)
        assert ADAPTER.tensor(output).dtype == "float64"
        native.norm._mean.zero_()
        raise KeyError

    with pytest.raises(KeyError), model.lifted("float64"):
        use()
    after = {path: (item.native.data_ptr(), item.view().tobytes()) for path, item in model.parameters().items()}
    assert after == before
    assert native.cached[0].dtype == paddle.float32
    assert paddle.get_default_dtype() == "float32"
    model.run((leaf(rows()),), {}, total)
    assert native.first.weight.grad.dtype == paddle.float32


@pytest.mark.parametrize("build", [nn.LSTM, nn.GRU, nn.SimpleRNN])
def test_lifted_recurrent_layers_follow(build: Any) -> None:
    model = ADAPTER.wrap(build(2, 3, 2, direction="bidirect"))
    x = rows(6, 2).reshape(2, 3, 2)
    plain = model.run((leaf(x),), {})[0].numpy()
    with model.lifted("float64"):
        wide = model.run((ADAPTER.from_numpy(x.astype(np.float64)),), {})[0].numpy()
    assert wide.dtype == np.float64
    np.testing.assert_allclose(wide, plain, atol=1e-6)
    assert model.run((leaf(x),), {})[0].numpy().tobytes() == plain.tobytes()


def test_lifted_names_what_it_cannot_do() -> None:
    with pytest.raises(LiftError, match="float99"), ADAPTER.wrap(Block()).lifted("float99"):
        pass


def test_traced_models_are_refused_with_a_hint(tmp_path: Path) -> None:
    static = paddle.jit.to_static(Block(), full_graph=True)
    with pytest.raises(UnwatchableModel, match=r"Block(.|\n)*rollback"):
        ADAPTER.wrap(static)
    outer = nn.Sequential(nn.ReLU(), static)
    with pytest.raises(UnwatchableModel, match="'1'"):
        ADAPTER.wrap(outer)
    with pytest.raises(UnwatchableModel, match=r"\.network"):
        ADAPTER.wrap(paddle.Model(nn.Linear(2, 2)))
    spec = [paddle.static.InputSpec([None, 2], "float32")]
    paddle.jit.save(paddle.jit.to_static(nn.Linear(2, 2), full_graph=True, input_spec=spec), str(tmp_path / "net"))
    with pytest.raises(UnwatchableModel, match="set_state_dict"):
        ADAPTER.wrap(paddle.jit.load(str(tmp_path / "net")))


def test_partially_traced_models_are_watched_at_every_call() -> None:
    model = ADAPTER.wrap(paddle.jit.to_static(Block(), full_graph=False))
    assert (model.modules()[""].definition or ("",))[0] == __file__
    for _ in range(2):
        log = Log()
        with model.attach(log):
            model.run((leaf(rows()),), {})
        assert ("leave", "last") in log.events
        assert ProgramTranslator().enable_to_static


class Scaled(nn.Layer):
    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.layer, self.scale = nn.Linear(4, 3), scale

    def forward(self, x: Any) -> Any:
        return self.layer(x) * self.scale


def test_a_partially_traced_model_is_a_side_as_it_was_written() -> None:
    def port(scale: float) -> Any:
        return paddle.jit.to_static(Scaled(scale), full_graph=False)

    assert padiff.diff(Scaled(), port(1.0), rows()).aligned
    (source,) = padiff.diff(Scaled(), port(1.1), rows()).sources
    assert source.candidate.path == ""


# The rest


def test_optimizers_inside_fleets_wrappers_are_known() -> None:
    optimizer = paddle.optimizer.SGD(0.1, parameters=nn.Linear(1, 1).parameters())
    assert ADAPTER.is_optimizer(types.SimpleNamespace(_inner_opt=optimizer))


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda p: paddle.optimizer.SGD(0.1, p, weight_decay=0.01), ("sgd", 0.01, {"momentum": 0.0})),
        (
            lambda p: paddle.optimizer.Momentum(0.1, 0.8, p, use_nesterov=True, weight_decay=0.02),
            ("sgd", 0.02, {"momentum": 0.8, "nesterov": True}),
        ),
        (
            lambda p: paddle.optimizer.Adam(0.1, 0.8, 0.9, 1e-6, p, paddle.regularizer.L2Decay(0.03)),
            ("adam", 0.03, {"beta1": 0.8, "beta2": 0.9, "eps": 1e-6}),
        ),
        (lambda p: paddle.optimizer.AdamW(0.1, parameters=p), ("adamw", 0.01, {"beta1": 0.9})),
        (lambda p: paddle.optimizer.RMSProp(0.1, parameters=p), ("rmsprop", 0.0, {"eps": 1e-6})),
        (lambda p: paddle.optimizer.Lamb(0.1, 0.04, parameters=p), ("lamb", 0.04, {"beta2": 0.999})),
    ],
)
def test_optimizer_settings_have_common_names(build: Any, expected: tuple[str, float, dict[str, Any]]) -> None:
    settings = ADAPTER.optimizer_settings(build(nn.Linear(1, 1).parameters()))
    assert (settings["class"], settings["lr"]) == (expected[0], pytest.approx(0.1))
    assert settings["weight_decay"] == pytest.approx(expected[1])
    assert {key: settings[key] for key in expected[2]} == expected[2]
    assert ADAPTER.optimizer_settings(lambda: None) == {}


@pytest.mark.parametrize("name", ["Momentum", "SGD", "Adam", "AdamW", "RMSProp"])
def test_a_group_decays_by_what_the_optimizer_says_where_it_says_nothing(name: str) -> None:
    layers = [nn.Linear(1, 1) for _ in range(3)]
    groups = [{"params": one.parameters(), **more} for one, more in zip(layers, DECAYS, strict=True)]
    optimizer = getattr(paddle.optimizer, name)(0.1, parameters=groups, weight_decay=0.01)
    told = [settings["weight_decay"] for _, settings in ADAPTER.optimizer_parameters(optimizer)]
    assert told == pytest.approx([0.01, 0.01, 0.0, 0.0, 0.5, 0.5])


DECAYS: list[dict[str, float]] = [{}, {"weight_decay": 0.0}, {"weight_decay": 0.5}]
"""What groups of parameters say."""

SETTINGS: list[tuple[Any, dict[str, Any]]] = [
    (nn.BatchNorm2D(3, momentum=0.9, epsilon=1e-3), {"momentum": 0.1, "eps": 1e-3, "training": True}),
    (nn.BatchNorm2D(3, use_global_stats=True), {"training": False}),
    (nn.BatchNorm(3, is_test=True), {"training": nn.BatchNorm(3, is_test=True).training}),  # Paddle 2.6 ignores it
    (nn.Conv2D(1, 1, 3, padding=[1, 2], stride=2), {"padding": ((1, 1), (2, 2)), "stride": (2, 2)}),
    (nn.Conv2D(1, 1, 3, padding=[1, 2, 3, 4]), {"padding": ((1, 2), (3, 4)), "data_format": "NCHW"}),
    (
        nn.Conv2D(1, 1, 3, padding=[[0, 0], [1, 2], [3, 4], [0, 0]], data_format="NHWC"),
        {"padding": ((1, 2), (3, 4))},
    ),
    (nn.Conv1D(1, 1, 3, padding="SAME", data_format="NLC"), {"padding": ((1, 1),), "data_format": "NHWC"}),
    (nn.Conv2DTranspose(1, 1, 3, output_padding=1, stride=2), {"output_padding": (1, 1)}),
    (
        nn.AvgPool2D(2, padding=1, exclusive=False),
        {"count_include_pad": True, "kernel_size": (2, 2), "stride": (2, 2)},
    ),
    (nn.MaxPool1D(2), {"kernel_size": (2,), "padding": ((0, 0),)}),
    (nn.AdaptiveAvgPool2D([None, 3]), {"output_size": (None, 3)}),
    (nn.Dropout(0.2, mode="downscale_in_infer"), {"p": 0.2, "mode": "downscale_in_infer", "axis": "element"}),
    (nn.Dropout(0.2, axis=[0, 1]), {"axis": "channel"}),
    (nn.GELU(True), {"approximate": "tanh"}),
    (nn.GELU(), {"approximate": "none"}),
    (nn.Pad2D([1, 2, 3, 4]), {"padding": ((3, 4), (1, 2)), "mode": "constant", "value": 0.0}),
    (nn.Upsample(scale_factor=2, mode="nearest"), {"scale": (2, 2), "size": None, "align_corners": False}),
    (nn.Embedding(3, 2, padding_idx=-1), {"padding_idx": 2}),
    (nn.Embedding(3, 2), {"padding_idx": None}),
    (nn.GRU(2, 3, 2, time_major=True), {"batch_first": False, "num_layers": 2, "bidirectional": False}),
    (nn.TransformerEncoderLayer(4, 2, 8, activation="gelu"), {"norm_first": False, "activation": "gelu"}),
]


@pytest.mark.parametrize(("layer", "expected"), SETTINGS, ids=lambda value: type(value).__name__)
def test_settings_are_in_the_catalogues_convention(layer: Any, expected: dict[str, Any]) -> None:
    rule = ADAPTER.rule(layer)
    assert rule is not None
    values = {name: setting.value(layer) for name, setting in rule.settings.items()}
    assert {name: values[name] for name in expected} == expected


def transfer(source: Any, target: Any) -> None:
    """Copy a torch module into the Paddle layer through the table; torch names the roles."""
    rule = ADAPTER.rule(target)
    assert rule is not None
    known = {path: item for item in ADAPTER.wrap(target).parameters().values() for path in item.paths}
    for name, unit in rule.units_of(target).items():
        for role, part in unit.roles.items():
            value = getattr(source, f"{role}_{name}" if name else role, None)
            if value is not None and part.parameter in known:
                native = np.array(known[part.parameter].view())
                part.write(native, value.detach().numpy())
                known[part.parameter].assign(native)


RECURRENT = [(torch.nn.LSTM, nn.LSTM), (torch.nn.GRU, nn.GRU), (torch.nn.RNN, nn.SimpleRNN)]


@pytest.mark.parametrize(("theirs", "ours"), RECURRENT, ids=["lstm", "gru", "rnn"])
def test_recurrent_gates_are_in_canonical_order(theirs: Any, ours: Any) -> None:
    source = theirs(4, 3, 2, bidirectional=True, batch_first=True)
    target = ours(4, 3, 2, direction="bidirect")
    transfer(source, target)
    x = rows(10).reshape(2, 5, 4)
    np.testing.assert_allclose(target(paddle.to_tensor(x))[0].numpy(), source(torch.tensor(x))[0].detach(), atol=1e-6)


@pytest.mark.skipif(not PROJECTED, reason="this Paddle has no projected LSTM")
def test_projected_lstm_is_read_where_paddle_misnames_its_parameters() -> None:
    source, target = torch.nn.LSTM(4, 3, 2, batch_first=True, proj_size=2), nn.LSTM(4, 3, 2, proj_size=2)
    assert list(target.weight_ih_l1.shape) == [3, 2]  # in truth the projection of layer 0
    rule = ADAPTER.rule(target)
    assert rule is not None
    assert rule.units_of(target)["l1"].roles["weight_ih"].parameter == "1.cell.weight_ih"
    source.weight_hr_l0_projection, source.weight_hr_l1_projection = source.weight_hr_l0, source.weight_hr_l1
    transfer(source, target)
    x = rows(10).reshape(2, 5, 4)
    np.testing.assert_allclose(target(paddle.to_tensor(x))[0].numpy(), source(torch.tensor(x))[0].detach(), atol=1e-6)


def test_batch_norm_keeps_the_biased_variance() -> None:
    """Hold the fact that judging running statistics rests on: torch keeps the unbiased one."""
    layer, x = nn.BatchNorm1D(4), rows()
    layer(paddle.to_tensor(x))
    np.testing.assert_allclose(layer._variance.numpy(), 0.9 + 0.1 * x.var(0), rtol=1e-5)


PAIRS = [
    (torch.nn.Linear(4, 3), nn.Linear(4, 3), rows()),
    (torch.nn.BatchNorm1d(4).eval(), nn.BatchNorm1D(4), rows()),
    (torch.nn.PReLU(), nn.PReLU(), rows()),
    (torch.nn.Conv1d(5, 2, 3), nn.Conv1D(5, 2, 3), rows(5, 5)[None]),
    (torch.nn.ConvTranspose1d(5, 2, 3), nn.Conv1DTranspose(5, 2, 3), rows(5, 5)[None]),
    (torch.nn.InstanceNorm1d(5, affine=True), nn.InstanceNorm1D(5), rows(5, 5)[None]),
]


@pytest.mark.parametrize(("source", "target", "x"), PAIRS, ids=lambda value: type(value).__name__)
def test_transferred_layers_compute_the_same(source: Any, target: Any, x: Any) -> None:
    for parameter in (*source.parameters(), *source.buffers()):
        if parameter.is_floating_point():
            torch.nn.init.uniform_(parameter, 0.5, 1.5)
    target.eval()
    transfer(source, target)
    np.testing.assert_allclose(target(paddle.to_tensor(x)).numpy(), source(torch.tensor(x)).detach(), atol=1e-5)


def test_bilinear_bias_loses_its_extra_axis() -> None:
    source, target = torch.nn.Bilinear(2, 3, 4), nn.Bilinear(2, 3, 4)
    transfer(source, target)
    a, b = rows(5, 2), rows(5, 3)
    expected = source(torch.tensor(a), torch.tensor(b)).detach()
    np.testing.assert_allclose(target(paddle.to_tensor(a), paddle.to_tensor(b)).numpy(), expected, atol=1e-6)


def test_places_tell_a_model_from_the_library() -> None:
    import paddle.nn.layer.layers as machinery
    import paddle.vision.models.resnet as model

    assert machinery.__file__.startswith(ADAPTER.machinery)
    assert nn.functional.linear.__code__.co_filename.startswith(ADAPTER.library)
    assert not model.__file__.startswith((*ADAPTER.library, *ADAPTER.machinery))


def test_a_hook_that_cannot_be_registered_leaves_none_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    model = paddle.nn.Sequential(paddle.nn.Linear(2, 2), paddle.nn.Linear(2, 2))

    def refuse(*args: Any, **kwargs: Any) -> Any:
        msg = "no more hooks"
        raise RuntimeError(msg)

    monkeypatch.setattr(model[1], "register_forward_post_hook", refuse)
    with pytest.raises(RuntimeError, match="no more hooks"):
        ADAPTER.wrap(model).attach(Log())
    for layer in model.sublayers(include_self=True):
        assert not layer._forward_pre_hooks
        assert not layer._forward_post_hooks


def test_a_view_of_a_gradient_keeps_its_memory() -> None:
    layer = nn.Linear(3, 4)
    layer(paddle.ones([2, 3])).sum().backward()
    gradient = ADAPTER.tensor(layer.weight.grad).view()
    before = gradient.copy()
    layer.weight.clear_gradient(False)  # frees what lies under the tensor
    kept = [paddle.rand([3, 4]) for _ in range(20)]
    assert (gradient.tobytes(), len(kept)) == (before.tobytes(), 20)


def test_keyword_arguments_are_seen_and_replaced_behind_the_users_own_hooks() -> None:
    class Scaled(nn.Layer):
        def forward(self, x: Any, scale: float = 1.0, **rest: Any) -> Any:
            assert not rest
            return x * scale

    class Replacing(Log):
        def enter(self, module: Any, args: Any, kwargs: Any) -> Any:
            super().enter(module, args, kwargs)
            return args, {"scale": 3.0}

        def leave(self, module: Any, args: Any, kwargs: Any, output: Any) -> Any:
            seen.append((args[0].item(), kwargs, output.item()))
            return output + 100

    layer, seen = Scaled(), list[Any]()
    layer.register_forward_pre_hook(lambda _, args: (args[0] * 2,))
    layer.register_forward_post_hook(lambda _, __, output: output + 1)
    given = {"scale": 5.0, "kwargs": 1}
    with ADAPTER.wrap(layer).attach(Replacing()):
        assert layer(paddle.ones([1]), **given).item() == 107.0
    assert seen == [(2.0, {"scale": 3.0}, 7.0)]
    assert given == {"scale": 5.0, "kwargs": 1}
    assert layer(paddle.ones([1]), scale=5.0).item() == 11.0
