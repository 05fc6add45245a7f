"""Hold the MindSpore adapter to the interface, and to what is MindSpore's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import mindspore
import ml_dtypes
import numpy as np
import pytest
import torch
from mindspore import mint, nn
from mindspore.experimental import optim as experimental
from numpy.typing import NDArray

import padiff
from padiff.errors import InputError, LiftError, UnwatchableModel
from padiff.pytree import leaves, map_leaves
from padiff.testing import AdapterTests, Log
from padiff_mindspore import autograd
from padiff_mindspore.adapter import MindSporeAdapter

Array = NDArray[Any]

ADAPTER = MindSporeAdapter()


@cache
def examples() -> tuple[Any, ...]:
    """Return one of each class that small numbers do not make, and some that have more to read."""
    return (
        nn.Dense(2, 3, has_bias=False, activation="relu"),
        nn.Conv2d(2, 2, 3, 2, "pad", (0, 1, 1, 2)),
        nn.Conv1d(2, 2, 3, pad_mode="valid", has_bias=True),
        nn.Conv2dTranspose(2, 2, 3, 2, "pad", 1, 1),
        nn.MaxPool2d(3, 2, "pad", 1, 2, ceil_mode=True),
        nn.AvgPool2d(3, 2, "pad", 1, count_include_pad=False),
        nn.MaxPool3d(3, 2, "pad", (1, 0, 1), ceil_mode=True),
        nn.AvgPool3d(3, 2, "pad", 1, divisor_override=5),
        nn.AdaptiveAvgPool2d((None, 2)),
        nn.LayerNorm((4, 2), begin_norm_axis=-1),
        nn.GroupNorm(2, 4),
        mint.nn.GroupNorm(2, 4),
        nn.Dropout(0.25),
        nn.Pad(((0, 0), (1, 2)), "REFLECT"),
        nn.Upsample(scale_factor=2.0, mode="bilinear"),
        nn.LSTM(2, 3, 2, bidirectional=True, has_bias=False),
        nn.RNN(2, 3, nonlinearity="relu"),
        nn.MultiheadAttention(4, 2, kdim=3, vdim=5, add_bias_kv=True),
        nn.TransformerEncoderLayer(4, 2, 4, activation="gelu"),
        nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 4), 1),
        nn.TransformerDecoder(nn.TransformerDecoderLayer(4, 2, 4), 1),
        nn.Transformer(4, 2, 1, 1, 4),
        mint.nn.MaxPool2d(3, padding=1),
        mint.nn.BatchNorm2d(3, affine=False, track_running_stats=False),
    )


class TestMindSpore(AdapterTests):
    """Run the suite that specifies the interface."""

    name = "mindspore"
    dtypes = (
        "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128 "
        "bfloat16 float8_e4m3fn float8_e5m2"
    )

    def linear(self, n_in: int, n_out: int) -> Any:
        return nn.Dense(n_in, n_out, bias_init="normal")

    def module(self, forward: Callable[..., Any], **children: Any) -> Any:
        made = type("Made", (nn.Cell,), {"construct": forward})()
        for name, child in children.items():
            setattr(made, name, child)
        return made

    def examples(self) -> Iterable[Any]:
        return examples()

    def add_in_place(self, tensor: Any, number: float) -> None:
        tensor.copy_(tensor + number)

    def batch_norm(self, features: int) -> Any:
        return nn.BatchNorm1d(features).set_train()

    def set_training(self, module: Any, training: bool) -> None:
        module.set_train(training)

    def dropout(self, p: float) -> Any:
        return nn.Dropout(p=p).set_train()

    def freeze(self, parameter: Any) -> None:
        parameter.requires_grad = False

    def sgd(self, model: Any, lr: float) -> Any:
        return nn.SGD(model.trainable_params(), lr)

    def recomputed(self, module: Any, x: Any) -> Any:
        return mindspore.recompute(module, x, use_reentrant=False)

    def rectified(self, tensor: Any) -> Any:
        return mindspore.ops.relu(tensor)

    def compiled(self, model: Any) -> Any:
        model.construct = mindspore.jit(model.construct)
        return model


class Block(nn.Cell):
    """Two dense layers around a batch norm and a dropout; the first is used under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Dense(4, 3)
        self.norm = nn.BatchNorm1d(3)
        self.drop = nn.Dropout(p=0.5)
        self.again = self.first
        self.last = nn.Dense(3, 4)
        self.scale = mindspore.Tensor([2.0] * 4)
        self.cached = [mindspore.ops.ones(4)]

    def construct(self, x: Any) -> Any:
        hidden = self.drop(self.norm(self.first(x)))
        return self.last(hidden) * self.scale * self.cached[0]


class Calling(nn.Cell):
    """Call a function of itself and its input."""

    def __init__(self, function: Callable[..., Any], **children: Any) -> None:
        super().__init__()
        self.function = function
        for name, child in children.items():
            setattr(self, name, child)

    def construct(self, x: Any) -> Any:
        return self.function(self, x)


def leaf(array: Any) -> Any:
    return ADAPTER.from_numpy(np.asarray(array, np.float32), differentiable=True)


def rows(n: int = 5, width: int = 4) -> Array:
    return np.random.default_rng(0).standard_normal((n, width)).astype(np.float32)


def total(output: Any) -> list[tuple[Any, Any]]:
    return [(output.sum(), None)]


def gradients_of(native: Any, x: Any) -> dict[str, list[Any]]:
    """Return the gradients of all parameters and of the input, of the sum of what a cell gives."""
    model, found = ADAPTER.wrap(native), {}
    with ADAPTER.tensor(x).on_gradient(lambda gradient: found.update(x=gradient.numpy().tolist())):
        model.run((x,), {}, total)
    for path, parameter in model.parameters().items():
        gradient = parameter.gradient()
        if gradient is not None:
            found[path] = gradient.tolist()
    return found


# Tensors


def test_a_view_is_seen_in_its_own_order_and_written_to() -> None:
    native = ADAPTER.from_numpy(np.arange(6, dtype=np.float32)).reshape(2, 3)
    memory = ADAPTER.tensor(native).writable()
    assert memory is not None
    memory[1, 2] = 7
    assert native.asnumpy()[1, 2] == 7
    turned = ADAPTER.tensor(native.T)
    assert turned.writable() is None
    assert turned.numpy().tolist() == [[0, 3], [1, 4], [2, 7]]


def test_a_part_that_is_assigned_changes_the_tensor() -> None:
    seen: list[tuple[int, int, list[float]]] = []

    def change(self: Any, x: Any) -> Any:
        hidden = x * 1
        tensor = ADAPTER.tensor(hidden)
        before = tensor.version
        tensor.on_gradient(lambda gradient: seen.append((before, tensor.version, gradient.numpy().tolist())))
        hidden[0] = x[1] * 3
        assert tensor.version > before
        assert tensor.version == ADAPTER.tensor(hidden).version
        return hidden * hidden

    found = gradients_of(Calling(change), leaf([1.0, 2.0]))
    assert found["x"] == [0.0, 3 * 2 * 6.0 + 2 * 2.0]
    assert [gradient for *_, gradient in seen] == [[0.0, 4.0]]  # of the value that was there before


def test_operations_named_as_in_place_leave_the_tensor_alone() -> None:
    """Hold the fact that only ``x[0] = y``, ``copy_`` and assignment change a tensor on the CPU."""
    native = mindspore.Tensor([1.0, 2.0])
    tensor = ADAPTER.tensor(native)
    before = tensor.version
    native.add_(mindspore.Tensor([1.0, 1.0]))
    changed = native.asnumpy().tolist() != [1.0, 2.0]
    assert (tensor.version > before) is changed


def test_a_replaced_gradient_of_an_input_is_what_the_input_gets() -> None:
    seen: list[list[float]] = []
    x = leaf([1.0, 2.0])

    def use(self: Any, x: Any) -> Any:
        ADAPTER.tensor(x).on_gradient(lambda gradient: seen.append(gradient.numpy().tolist()))
        return x * 3 + x * x

    with ADAPTER.tensor(x).on_gradient(lambda gradient: gradient.native * 2):
        ADAPTER.wrap(Calling(use)).run((x,), {}, total)
    assert seen == [[10.0, 14.0]]  # complete, and after the hook that came first


def test_swapped_keeps_a_narrow_dtype() -> None:
    native = mindspore.Tensor([1.0, 1.0], mindspore.bfloat16)
    swapped = ADAPTER.tensor(native).swapped(np.array([1.5, 2.5]))
    assert ADAPTER.tensor(swapped).dtype == "bfloat16"
    assert swapped.astype(mindspore.float32).asnumpy().tolist() == [1.5, 2.5]


def test_an_unused_output_of_several_gets_no_gradient() -> None:
    called: list[Any] = []

    def use(self: Any, x: Any) -> Any:
        first, second = mindspore.ops.split(x, 1)
        ADAPTER.tensor(second).on_gradient(lambda gradient: called.append(gradient))
        return first

    assert gradients_of(Calling(use), leaf([1.0, 2.0]))["x"] == [1.0, 0.0]
    assert all(gradient.numpy().tolist() == [0.0] for gradient in called)


# The tree


def test_parameters_come_by_path_not_by_name() -> None:
    native = Block()
    model = ADAPTER.wrap(native)
    assert list(model.modules()) == ["", "first", "norm", "drop", "last"]
    found = model.parameters()
    assert found["first.weight"].paths == ("first.weight", "again.weight")
    assert {path for path, item in found.items() if item.buffer} == {"norm.moving_mean", "norm.moving_variance"}
    assert found["norm.gamma"].trainable


def test_a_frozen_weight_is_no_statistic() -> None:
    native = nn.Dense(2, 2)
    native.weight.requires_grad = False
    weight = ADAPTER.wrap(native).parameters()["weight"]
    assert (weight.buffer, weight.trainable) == (False, False)


def test_parameters_of_cells_below_in_a_tuple_are_listed_once() -> None:
    inner = nn.Dense(2, 2)
    native = Calling(lambda self, x: self.inner(x), inner=inner)
    native.held = mindspore.ParameterTuple(inner.trainable_params())
    assert sorted(ADAPTER.wrap(native).parameters()) == ["inner.bias", "inner.weight"]


def test_an_empty_sequence_is_a_module() -> None:
    native = Calling(lambda self, x: self.skip(x), skip=nn.SequentialCell([]))
    log = Log()
    assert list(ADAPTER.wrap(native).modules()) == ["", "skip"]
    with ADAPTER.wrap(native).attach(log):
        ADAPTER.wrap(native).run((leaf([1.0]),), {})
    assert log.calls == ["", "skip"]


def test_cells_in_a_list_are_not_seen_but_pass_gradients_on() -> None:
    hidden = nn.Dense(2, 2)
    native = Calling(lambda self, x: self.held[0](self.shown(x)), shown=nn.Dense(2, 2))
    native.held = [hidden]
    assert list(ADAPTER.wrap(native).modules()) == ["", "shown"]
    found = gradients_of(native, leaf(rows(3, 2)))
    expected = np.tile(hidden.weight.asnumpy().sum(0), (3, 1)) @ native.shown.weight.asnumpy()
    np.testing.assert_allclose(found["x"], expected, rtol=1e-5)
    assert sorted(found) == ["shown.bias", "shown.weight", "x"]


def test_weights_without_values_are_named() -> None:
    from mindspore.nn.utils import no_init_parameters

    with no_init_parameters():
        native = nn.Dense(2, 2)
    with pytest.raises(InputError, match="init_parameters_data"):
        _ = ADAPTER.wrap(native).parameters()["weight"].shape


# Running and coming back


def test_an_error_is_raised_in_the_cell_that_made_it() -> None:
    """Kernels run later, in another thread: the missing one for bfloat16 is found long after Dense has returned."""
    native = nn.SequentialCell(nn.Dense(2, 2, dtype=mindspore.bfloat16), nn.ReLU())
    model, log = ADAPTER.wrap(native), Log()
    x = ADAPTER.from_numpy(rows(1, 2).astype(ml_dtypes.bfloat16))
    with model.attach(log), pytest.raises((RuntimeError, TypeError)):
        model.run((x,), {})
    assert log.events == [("enter", ""), ("enter", "0")]
    assert all(not cell._forward_hook for cell in native.cells_and_names() if isinstance(cell, nn.Cell))
    ADAPTER.wrap(nn.Dense(2, 2)).run((leaf(rows(1, 2)),), {}, total)


def test_flags_come_back_after_an_error() -> None:
    def fail(self: Any, x: Any) -> Any:
        raise KeyError

    before = (autograd.executor.grad_flag(), autograd.executor.enable_grad())
    with pytest.raises(KeyError):
        ADAPTER.wrap(Calling(fail)).run((leaf([1.0]),), {}, total)
    assert (autograd.executor.grad_flag(), autograd.executor.enable_grad()) == before
    weight = mindspore.Tensor([3.0])
    assert mindspore.grad(lambda x: (x * x * weight).sum())(mindspore.Tensor([2.0])).asnumpy().tolist() == [12.0]


def test_a_run_within_a_function_that_is_differentiated_leaves_its_graph() -> None:
    weight = mindspore.Tensor([3.0])

    def cubed(x: Any) -> Any:
        y = x * x
        gradients_of(nn.Dense(2, 2), leaf(rows(3, 2)))
        return (y * x * weight).sum()

    assert mindspore.grad(cubed)(mindspore.Tensor([2.0])).asnumpy().tolist() == [36.0]


def test_gradients_start_exactly_as_given() -> None:
    given = np.array([np.pi, 1e-30, -7.0], np.float32)
    x, found = leaf([1.0, 2.0, 3.0]), []
    with ADAPTER.tensor(x).on_gradient(lambda gradient: found.append(gradient.numpy())):
        ADAPTER.wrap(nn.SequentialCell([])).run((x,), {}, lambda y: [(y, mindspore.Tensor(given))])
    assert found[0].tobytes() == given.tobytes()


def test_a_weight_that_is_not_reached_gets_no_gradient() -> None:
    """Hold the difference from ``value_and_grad``, which gives zeros."""
    native = Calling(lambda self, x: self.used(x), used=nn.Dense(2, 2), idle=nn.Dense(2, 2))
    assert sorted(gradients_of(native, leaf(rows(1, 2)))) == ["used.bias", "used.weight", "x"]


def test_calls_that_recomputation_repeats_are_not_reported() -> None:
    native = nn.SequentialCell(nn.Dense(2, 2), nn.Tanh())
    expected = gradients_of(native, leaf(rows(3, 2)))
    native[0].recompute()
    log = Log()
    with ADAPTER.wrap(native).attach(log):
        assert gradients_of(native, leaf(rows(3, 2))) == expected
    assert log.calls == ["", "0", "1"]


def test_a_backward_of_the_users_own_is_used() -> None:
    class Own(nn.Cell):
        def construct(self, x: Any) -> Any:
            return x * 2

        def bprop(self, x: Any, out: Any, gradient: Any) -> Any:
            return (gradient * 7,)

    native = Calling(lambda self, x: self.own(x), own=Own())
    assert gradients_of(native, leaf([1.0]))["x"] == [7.0]


def test_a_gradient_within_the_model_disturbs_nothing() -> None:
    def energy(self: Any, x: Any) -> Any:
        return self.dense(x) + mindspore.grad(lambda y: (y * y * y).sum())(mindspore.ops.stop_gradient(x))

    native = Calling(energy, dense=nn.Dense(2, 2))
    x = leaf(rows(3, 2))
    found = gradients_of(native, x)
    np.testing.assert_allclose(found["x"], np.tile(native.dense.weight.asnumpy().sum(0), (3, 1)), rtol=1e-6)
    np.testing.assert_allclose(found["dense.weight"], np.tile(x.asnumpy().sum(0), (2, 1)), rtol=1e-5)


def test_dropout_draws_the_same_again() -> None:
    native = nn.SequentialCell(nn.Dropout(p=0.5)).set_train()
    x, given = leaf(np.ones((8, 8))), mindspore.get_seed()
    drawn = []
    for seed in (1, 1, 2):
        with ADAPTER.seeded(seed):
            drawn.append(ADAPTER.wrap(native).run((x,), {}).asnumpy().tobytes())
    assert drawn[0] == drawn[1] != drawn[2]
    assert mindspore.get_seed() == given


def halves(x: Any) -> Any:
    return mindspore.ops.dropout(x, 0.5, training=True)


KEPT, COMPILED = mindspore.ops.StandardNormal(), mindspore.jit(halves)
"""A primitive that is called more than once, and a function that no primitive is seen in."""


@pytest.mark.parametrize(
    ("native", "taken"),
    [
        (nn.SequentialCell(nn.Dropout(p=0.5)).set_train(), True),
        (nn.SequentialCell(nn.Dropout2d(p=0.5)).set_train(), True),
        (Calling(lambda _, x: halves(x)), True),
        (Calling(lambda _, x: COMPILED(x)), True),
        (Calling(lambda _, x: x + mindspore.ops.rand(4)), True),
        (Calling(lambda _, x: x + KEPT((4,))), True),
        (Calling(lambda _, x: x * float(np.random.rand())), True),
        (nn.SequentialCell(nn.Dropout(p=0.5)).set_train(False), False),
        (Calling(lambda _, x: mindspore.ops.softmax(x) + mindspore.ops.relu(x)), False),
        (Calling(lambda _, x: mindspore.ops.dropout(x, p=0.0)), False),
        (Calling(lambda _, x: mindspore.mint.nn.functional.dropout(x, 0.5, training=False)), False),
        (Calling(lambda _, x: mindspore.mint.nn.functional.dropout(x, 0.0)), False),
    ],
)
def test_what_draws_shows_whatever_seeds_it(native: nn.Cell, taken: bool) -> None:
    """Most primitives keep generators of their own, which show nowhere: that they were called does."""
    x = mindspore.Tensor(np.ones((2, 3, 4, 4), np.float32))
    with ADAPTER.seeded(0):
        before = ADAPTER.random_state()
        ADAPTER.wrap(native).run((x,), {})
        assert (before != ADAPTER.random_state()) is taken


@pytest.mark.parametrize("mode", ["ast", "bytecode"])
@pytest.mark.parametrize("factor", [1.0, 1.2])
def test_what_compiled_code_draws_is_judged_by_its_distribution(mode: str, factor: float) -> None:
    """What runs there shows nowhere: a right port was a source, since one side alone seemed to draw."""
    compiled = mindspore.jit(halves, capture_mode=mode)
    models = [
        Calling(lambda self, x, do=do: self.last(do(self.first(x))), first=nn.Dense(8, 8), last=nn.Dense(8, 4))
        for do in (halves, lambda x: compiled(x) * factor)
    ]
    report = padiff.diff(*models, (np.random.default_rng(0).standard_normal((6, 8), dtype=np.float32),))
    assert report.aligned is (factor == 1.0), str(report)


def test_preserved_puts_back_objects_too() -> None:
    native = Block().set_train()
    model = ADAPTER.wrap(native)
    native.first.bias._grad = held = mindspore.Tensor([7.0] * 3)
    mean, scale = native.norm.moving_mean, native.scale
    before, address = mean.asnumpy().tobytes(), mean.data_ptr()
    with model.preserved():
        model.run((leaf(rows()),), {}, total)
        native.scale = native.scale * 3
        native.set_train(False)
        assert mean.asnumpy().tobytes() != before
    assert native.norm.moving_mean is mean
    assert (mean.asnumpy().tobytes(), mean.data_ptr()) == (before, address)
    assert native.scale is scale
    assert native.first.bias._grad.data_ptr() == held.data_ptr()
    assert held.asnumpy().tolist() == [7.0] * 3
    assert native.training
    assert native.drop.training


def test_lifted_widens_attributes_and_puts_the_storage_back() -> None:
    native = Calling(lambda self, x: self.dense(x) * self.scale * self.cached[0], dense=nn.Dense(4, 4))
    native.scale, native.cached = mindspore.Tensor([2.0] * 4), [mindspore.ops.ones(4)]
    model = ADAPTER.wrap(native)
    before = {path: (item.native.data_ptr(), item.view().tobytes()) for path, item in model.parameters().items()}

    def use() -> None:
        assert {item.dtype for item in model.parameters().values()} == {"float64"}
        output = model.run((ADAPTER.from_numpy(rows().astype(np.float64), differentiable=True),), {}, total)
        assert ADAPTER.tensor(output).dtype == "float64"
        raise KeyError

    with pytest.raises(KeyError), model.lifted("float64"):
        use()
    after = {path: (item.native.data_ptr(), item.view().tobytes()) for path, item in model.parameters().items()}
    assert after == before
    assert native.cached[0].dtype == native.scale.dtype == mindspore.float32
    model.run((leaf(rows()),), {}, total)
    assert model.parameters()["dense.weight"].native._grad.dtype == mindspore.float32


def test_lifted_takes_the_numbers_of_operators_as_they_are() -> None:
    """MindSpore rounds them to float32: next to a zero of what is made with them, that is far more than rounding."""
    native = Calling(lambda self, x: mindspore.ops.cos(0.3 / (0.1 + x) * np.pi - x) + 1.7 * (0.2 - x / 0.7))
    x = rows().astype(np.float64)
    with (model := ADAPTER.wrap(native)).lifted("float64"):
        made = ADAPTER.tensor(model.run((ADAPTER.from_numpy(x),), {})).numpy()
    expected = np.cos(0.3 / (0.1 + x) * np.pi - x) + 1.7 * (0.2 - x / 0.7)
    assert np.abs(made - expected).max() < 1e-13
    assert np.abs((mindspore.Tensor(x) * 0.1).asnumpy() - x * 0.1).max() > 1e-10


@pytest.mark.parametrize("kind", [nn.BatchNorm2d, nn.PReLU, lambda n: nn.Conv2d(n, 2, 3)])
def test_what_has_no_float64_kernel_computes_in_float32_where_it_may(kind: Callable[[int], Any]) -> None:
    """Its gradients come through, and what it writes into its statistics stays."""
    x = rows(24).reshape(2, 3, 4, 4)
    native = Calling(lambda self, x: self.inner(x * 0.5), inner=kind(3))
    model = ADAPTER.wrap(native.set_train())

    def made(dtype: str) -> list[Array]:
        given = ADAPTER.from_numpy(x.astype(dtype), differentiable=True)
        output = model.run((given,), {}, lambda output: [(output, ADAPTER.from_numpy(np.cos(output.asnumpy())))])
        held = [one.view() if one.buffer else one.gradient() for one in model.parameters().values()]
        return [ADAPTER.tensor(output).numpy(), *(np.array(one) for one in held if one is not None)]

    with model.preserved():
        native_values = made("float32")
    with model.preserved(), model.lifted("float64"):
        with pytest.raises(TypeError, match=r"(?i)float64"):
            made("float64")
        with ADAPTER.narrowing():
            wide = made("float64")
    assert len(wide) == len(native_values) > 1
    for one, other in zip(wide, native_values, strict=True):
        assert one.dtype == np.float64
        assert np.abs(one - other).max() < 1e-5 * np.abs(other).max()


@pytest.mark.parametrize("level", ["O2", "O3", "auto"])
@pytest.mark.parametrize("epsilon", [1e-5, 1e-2])
def test_what_casts_automatically_is_right_but_for_its_types(level: str, epsilon: float) -> None:
    reference = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.LayerNorm(8), torch.nn.Linear(8, 4))
    plain = nn.SequentialCell(nn.Dense(8, 8), nn.LayerNorm((8,), epsilon=epsilon), nn.Dense(8, 4))
    casting = mindspore.amp.auto_mixed_precision(plain, level)
    report = padiff.diff(reference, casting, (np.random.default_rng(0).standard_normal((3, 8), dtype=np.float32),))
    assert report.aligned is (epsilon == 1e-5), report
    assert report.counts[padiff.Verdict.PRECISION], report
    # O2 puts a norm into a cell of its own: that is told, where it is called.
    path, cause = "" if level == "O2" else "1", None
    cause = (
        "as _OutputTo16(_) in the candidate" if level == "O2" else "eps: 1e-05 in the reference, 0.01 in the candidate"
    )
    assert [one.reference.path for one in report.sources] == [path] * (not report.aligned), report
    assert all(str(one.cause).endswith(cause) for one in report.sources), report


@pytest.mark.parametrize("fault", ["", "activation"])
def test_a_script_with_automatic_casts_is_right_but_for_its_types(tmp_path: Path, fault: str) -> None:
    """Its layers give float32, for their biases are added in it: the first one was a source."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16), torch.nn.Linear(16, 4))
    inner = nn.ReLU() if fault else nn.GELU(approximate=False)
    plain = nn.SequentialCell(nn.Dense(8, 16), inner, nn.LayerNorm((16,), epsilon=1e-5), nn.Dense(16, 4))
    padiff.transfer(model, plain)
    casting = mindspore.amp.auto_mixed_precision(plain, "auto")
    given = [np.random.default_rng(seed).standard_normal((8, 8), dtype=np.float32) for seed in range(2)]
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with padiff.record(model, tmp_path / "a", optimizer=optimizer) as recorder:
        for x in given:
            optimizer.zero_grad()
            loss = (model(torch.from_numpy(x)) ** 2).mean()
            loss.backward()
            optimizer.step()
            recorder.step(loss.item())
    other = nn.SGD(casting.trainable_params(), 0.1)
    step = mindspore.value_and_grad(lambda x: (casting(x) ** 2).mean(), None, casting.trainable_params())
    with padiff.record(casting, tmp_path / "b", optimizer=other) as recorder:
        for x in given:
            loss, gradients = step(mindspore.Tensor(x))
            other(gradients)
            recorder.step(float(loss))
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert report.aligned is not bool(fault), report
    assert [one.candidate.path for one in report.sources] == ["1"] * bool(fault), report
    assert "as far as float16 shows" in str(report)


@pytest.mark.parametrize("level", ["O0", "auto"])
@pytest.mark.parametrize("epsilon", [1e-5, 1e-1])
def test_an_evaluation_with_automatic_casts_is_right_but_for_its_types(
    tmp_path: Path, level: str, epsilon: float
) -> None:
    """Without gradients the casts tell in which type layers compute, and no norm is excused by them."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.LayerNorm(16), torch.nn.Linear(16, 4)).eval()
    plain = nn.SequentialCell(nn.Dense(8, 16), nn.LayerNorm((16,), epsilon=epsilon), nn.Dense(16, 4)).set_train(False)
    padiff.transfer(model, plain)
    casting = mindspore.amp.auto_mixed_precision(plain, level)
    x = np.random.default_rng(0).standard_normal((8, 8), dtype=np.float32)
    for name, net, given in (("a", model, torch.from_numpy(x)), ("b", casting, mindspore.Tensor(x))):
        with padiff.record(net, tmp_path / name) as recorder, torch.no_grad():
            net(given)
            recorder.step()
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert [one.candidate.path for one in report.sources] == ["1"] * (epsilon > 1e-5), report
    assert report.aligned is (epsilon == 1e-5), report
    modules = [note.data["modules"] for note in report.notes if note.kind == "unlike_casts"]
    assert modules == [["0", "2"]] * (level == "auto"), report


def test_lifted_names_what_it_cannot_do() -> None:
    with pytest.raises(LiftError, match="float99"), ADAPTER.wrap(Block()).lifted("float99"):
        pass


def test_an_optimizer_goes_on_with_weights_that_were_assigned() -> None:
    """A compiled step keeps to the storage that it saw first."""
    native = nn.Dense(2, 1, has_bias=False)
    optimizer = nn.SGD(native.trainable_params(), 1.0)
    weight = ADAPTER.wrap(native).parameters()["weight"]
    for _ in range(2):
        weight.assign(np.ones((1, 2), np.float32))
        weight.set_gradient(np.array([[1.0, 2.0]], np.float32))
        ADAPTER.step(optimizer)
        assert weight.view().tolist() == [[0.0, -1.0]]
    assert weight.gradient() is None


# What cannot be watched


@pytest.fixture
def graph_mode() -> Iterator[None]:
    mindspore.set_context(mode=mindspore.GRAPH_MODE)
    yield
    mindspore.set_context(mode=mindspore.PYNATIVE_MODE)


@pytest.mark.usefixtures("graph_mode")
def test_graph_mode_is_refused_with_a_hint() -> None:
    with pytest.raises(UnwatchableModel, match=r"GRAPH_MODE(.|\n)*PYNATIVE_MODE"):
        ADAPTER.wrap(nn.Dense(2, 2))


class Compiled(nn.Cell):
    """Compile the construct where it is defined."""

    @mindspore.jit
    def construct(self, x: Any) -> Any:
        return x * 2


def test_compiled_cells_are_refused_with_a_hint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnwatchableModel, match=r"the model \(.*Compiled\)(.|\n)*MS_JIT=0"):
        ADAPTER.wrap(Compiled())
    with pytest.raises(UnwatchableModel, match=r"the cell '1'(.|\n)*jit"):
        ADAPTER.wrap(nn.SequentialCell(nn.ReLU(), Compiled()))
    late = nn.Dense(2, 2)
    model = ADAPTER.wrap(late)
    late.construct = mindspore.jit(late.construct)
    with pytest.raises(UnwatchableModel, match="jit"):
        model.run((leaf(rows(1, 2)),), {})
    with pytest.raises(UnwatchableModel, match="network itself"):
        ADAPTER.wrap(mindspore.train.Model(nn.Dense(2, 2)))
    mindspore.export(
        nn.Dense(2, 2), mindspore.Tensor(rows(1, 2)), file_name=str(tmp_path / "net"), file_format="MINDIR"
    )
    with pytest.raises(UnwatchableModel, match="load_checkpoint"):
        ADAPTER.wrap(nn.GraphCell(mindspore.load(str(tmp_path / "net.mindir"))))
    monkeypatch.setenv("MS_JIT", "0")
    assert list(ADAPTER.wrap(Compiled()).modules()) == [""]


# The rest


def _decayed(parameters: Any) -> list[dict[str, Any]]:
    return [{"params": parameters[:1], "weight_decay": 0.01}, {"params": parameters[1:], "lr": 0.2}]


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (
            lambda p: nn.SGD(p, 0.1, 0.8, nesterov=True, weight_decay=0.01),
            {"class": "sgd", "lr": 0.1, "weight_decay": 0.01, "momentum": 0.8, "nesterov": True},
        ),
        (lambda p: nn.Momentum(p, 0.1, 0.9), {"class": "sgd", "momentum": 0.9, "nesterov": False, "weight_decay": 0.0}),
        (
            lambda p: nn.Adam(p, 0.1, 0.8, 0.9, 1e-6),
            {"class": "adam", "beta1": 0.8, "beta2": 0.9, "eps": 1e-6, "amsgrad": False},
        ),
        (
            lambda p: nn.AdamWeightDecay(p, 0.1, weight_decay=0.04),
            {"class": "adamw", "eps": 1e-6, "weight_decay": 0.04},
        ),
        (lambda p: nn.RMSProp(p, 0.1), {"class": "rmsprop", "rho": 0.9, "eps": 1e-10, "centered": False}),
        (lambda p: nn.Adagrad(p, learning_rate=0.1), {"class": "adagrad", "lr": 0.1}),
        (
            lambda p: nn.SGD(_decayed(p), 0.1),
            {"lr": 0.1, "group1.lr": 0.2, "weight_decay": 0.01, "group1.weight_decay": 0.0},
        ),
        (lambda p: nn.Lamb(p, 0.1, weight_decay=0.04), {"class": "lamb", "beta1": 0.9, "weight_decay": 0.04}),
        (
            lambda p: mint.optim.AdamW(p, 0.1, betas=(0.8, 0.9), weight_decay=0.03),
            {"class": "adamw", "beta1": 0.8, "beta2": 0.9, "weight_decay": 0.03},
        ),
        (lambda p: experimental.SGD(p, 0.1, momentum=0.5), {"class": "sgd", "momentum": 0.5}),
        (lambda p: nn.AdamWeightDecay(p, 0.1), {"class": "adamw", "bias_correction": False}),
        *(
            (build, {"class": build(nn.Dense(1, 1).trainable_params()).__class__.__name__.lower(), "eps_place": place})
            for build, place in (
                (lambda p: nn.Adam(p, 0.1), "added to the root before its bias is corrected"),
                (lambda p: experimental.Adam(p, 0.1), "added to the root before its bias is corrected"),
                (lambda p: experimental.AdamW(p, 0.1), "added to the root"),
                (lambda p: mint.optim.Adam(p, 0.1), "added to the root"),
            )
        ),
    ],
)
def test_optimizer_settings_have_common_names(build: Any, expected: dict[str, Any]) -> None:
    optimizer = build(nn.Dense(2, 2).trainable_params())
    settings = ADAPTER.optimizer_settings(optimizer)
    assert ADAPTER.is_optimizer(optimizer)
    assert {key: settings[key] for key in expected} == {
        key: value if isinstance(value, str | bool) else pytest.approx(value) for key, value in expected.items()
    }
    assert ADAPTER.optimizer_settings(lambda: None) == {}


def test_what_mindspore_leaves_out_of_the_decay_is_told() -> None:
    native = nn.SequentialCell(nn.Dense(2, 2), nn.LayerNorm((2,)))
    settings = ADAPTER.optimizer_settings(nn.SGD(native.trainable_params(), 0.1, weight_decay=0.01))
    assert settings["not decayed"] == "1.gamma, 1.beta"
    assert "not decayed" not in ADAPTER.optimizer_settings(nn.SGD(native.trainable_params(), 0.1))


def _seen(cell: Any, *shape: int) -> Any:
    """Return the cell after it has run once: what ``same`` pads depends on the size."""
    with ADAPTER.wrap(cell).attach(Log()):
        cell(mindspore.ops.ones(shape))
    return cell


SETTINGS: list[tuple[Any, dict[str, Any]]] = [
    (nn.BatchNorm2d(3, eps=1e-3, momentum=0.9), {"momentum": 0.1, "eps": 1e-3, "training": False}),
    (nn.BatchNorm2d(3).set_train(), {"training": True}),
    (nn.BatchNorm2d(3, use_batch_statistics=True), {"training": True}),
    (mint.nn.BatchNorm2d(3, momentum=0.2), {"momentum": 0.2}),
    (nn.Conv2d(1, 1, 3, 2, "pad", (1, 2, 3, 4), 1), {"padding": ((1, 2), (3, 4)), "stride": (2, 2)}),
    (nn.Conv2d(1, 1, 3, pad_mode="valid"), {"padding": ((0, 0), (0, 0))}),
    (nn.Conv2d(1, 1, 3), {"padding": ((1, 1), (1, 1))}),
    (_seen(nn.Conv2d(1, 1, 3, 2), 1, 1, 8, 9), {"padding": ((0, 1), (1, 1))}),
    (_seen(nn.Conv2d(1, 1, 4), 1, 1, 8, 9), {"padding": ((1, 2), (1, 2))}),
    (_seen(nn.Conv2d(1, 1, 3, dilation=2), 1, 1, 8, 9), {"padding": ((2, 2), (2, 2)), "dilation": (2, 2)}),
    (_seen(nn.MaxPool2d(3, 2, "same"), 1, 1, 8, 9), {"padding": ((0, 1), (1, 1)), "stride": (2, 2)}),
    (nn.Conv1d(1, 1, 3, 2, "pad", 1, 1), {"padding": ((1, 1),), "stride": (2,), "padding_mode": "zeros"}),
    (nn.Conv3d(1, 1, 3, pad_mode="pad", padding=1), {"padding": ((1, 1), (1, 1), (1, 1))}),
    (nn.Conv2dTranspose(1, 1, 4, 2), {"padding": ((1, 1), (1, 1)), "output_padding": (0, 0)}),
    (nn.AvgPool2d(3, 1, "same"), {"count_include_pad": False, "kernel_size": (3, 3)}),
    (nn.AvgPool2d(3, 2, "pad", 1), {"count_include_pad": True, "padding": ((1, 1), (1, 1)), "divisor": None}),
    (nn.MaxPool1d(3, 2, "pad", 1), {"padding": ((1, 1),), "kernel_size": (3,), "ceil_mode": False}),
    (nn.AdaptiveAvgPool2d((None, 3)), {"output_size": (None, 3)}),
    (nn.Dropout(p=0.2), {"p": 0.2, "mode": "upscale_in_train", "axis": "element"}),
    (nn.Dropout(0.8), {"p": 0.2}),
    (nn.Dropout2d(0.2), {"p": 0.2, "axis": "channel"}),
    (nn.GELU(), {"approximate": "tanh"}),
    (nn.GELU(approximate=False), {"approximate": "none"}),
    (nn.LeakyReLU(), {"slope": 0.2}),
    (nn.Softmax(1), {"axis": 1}),
    (nn.Dense(2, 2, activation="relu"), {"fused": "relu"}),
    (nn.Dense(2, 2), {"fused": None}),
    (nn.LayerNorm((3, 4), begin_norm_axis=-1), {"normalized_shape": (4,), "eps": 1e-7}),
    (nn.LRN(2, 2.0, 0.1, 0.75), {"size": 5, "alpha": 0.5, "k": 2.0}),
    (nn.Pad(((0, 0), (0, 0), (3, 4), (1, 2))), {"padding": ((3, 4), (1, 2)), "mode": "constant"}),
    (nn.ZeroPad2d((1, 2, 3, 4)), {"padding": ((3, 4), (1, 2)), "mode": "constant", "value": 0.0}),
    (nn.Embedding(3, 2, padding_idx=1), {"padding_idx": None}),
    (nn.RNN(2, 3, nonlinearity="relu"), {"activation": "relu", "batch_first": False}),
    (
        nn.TransformerEncoderLayer(4, 2, 8, activation="gelu", norm_first=True),
        {"norm_first": True, "activation": "gelu"},
    ),
]


@pytest.mark.parametrize(("layer", "expected"), SETTINGS, ids=lambda value: type(value).__name__)
def test_settings_are_in_the_catalogues_convention(layer: Any, expected: dict[str, Any]) -> None:
    rule = ADAPTER.rule(layer)
    assert rule is not None
    values = {name: setting.value(layer) for name, setting in rule.settings.items()}
    assert {name: values[name] for name in expected} == expected


def test_the_padding_of_an_embedding_is_trained() -> None:
    """Torch gives that row no gradient: a port with the same argument was a source without a cause."""
    indices = np.array([[0, 1, 2]], np.int32)
    ours, theirs = torch.nn.Embedding(3, 2, padding_idx=0), nn.Embedding(3, 2, padding_idx=0)
    report = padiff.diff(ours, theirs, (indices,))
    (source,) = report.sources
    assert (source.cause.name, *source.cause.parameters) == ("settings", "padding_idx"), report
    assert "None (padding_idx=0) in the candidate" in str(report)
    assert padiff.diff(torch.nn.Embedding(3, 2), theirs, (indices,)).aligned


def test_what_same_pads_is_what_is_computed() -> None:
    """Pad by hand as the settings say: a convolution without padding then gives the same."""
    for size, kernel, stride, dilation in [(8, 3, 2, 1), (9, 3, 2, 1), (8, 4, 1, 1), (7, 2, 3, 1), (9, 3, 2, 2)]:
        same = nn.Conv2d(2, 3, kernel, stride, "same", dilation=dilation)
        x = np.random.default_rng(0).standard_normal((1, 2, size, size)).astype(np.float32)
        _seen(same, 1, 2, size, size)
        rule = ADAPTER.rule(same)
        assert rule is not None
        rows_, columns = rule.settings["padding"].value(same)
        padded = torch.nn.functional.pad(torch.tensor(x), (*columns, *rows_))
        expected = torch.nn.functional.conv2d(
            padded, torch.tensor(same.weight.asnumpy()), stride=stride, dilation=dilation
        )
        np.testing.assert_allclose(same(mindspore.Tensor(x)).asnumpy(), expected, atol=1e-5)


def transfer(source: Any, target: Any) -> None:
    """Copy a torch module into the cell through the table; torch names the roles."""
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


def _image(channels: int = 4) -> Array:
    return np.random.default_rng(0).standard_normal((2, channels, 9, 10)).astype(np.float32)


def _volume() -> Array:
    return np.random.default_rng(0).standard_normal((2, 4, 6, 7, 6)).astype(np.float32)


def _sequence() -> Array:
    return rows(10, 8).reshape(2, 5, 8)


PAIRS = [
    (torch.nn.Linear(4, 3), nn.Dense(4, 3), rows()),
    (torch.nn.Linear(4, 3), mint.nn.Linear(4, 3), rows()),
    (torch.nn.BatchNorm1d(4).eval(), nn.BatchNorm1d(4), rows()),
    (torch.nn.BatchNorm2d(4).eval(), nn.BatchNorm2d(4), _image()),
    (torch.nn.BatchNorm3d(4).eval(), nn.BatchNorm3d(4), _volume()),
    (torch.nn.LayerNorm(8, eps=1e-7), nn.LayerNorm((8,)), _sequence()),
    (torch.nn.GroupNorm(2, 4), nn.GroupNorm(2, 4), _image()),
    (torch.nn.PReLU(4), nn.PReLU(4), _image()),
    (torch.nn.Embedding(10, 4), nn.Embedding(10, 4), np.array([[1, 2, 5], [3, 4, 0]])),
    (torch.nn.Conv1d(5, 2, 3, 2, 1), nn.Conv1d(5, 2, 3, 2, "pad", 1, has_bias=True), rows(5, 9)[None]),
    (torch.nn.Conv2d(4, 6, 3, padding=1, groups=2), nn.Conv2d(4, 6, 3, group=2, has_bias=True), _image()),
    (torch.nn.Conv3d(4, 6, 3), nn.Conv3d(4, 6, 3, pad_mode="valid", has_bias=True), _volume()),
    (torch.nn.ConvTranspose1d(5, 2, 3), nn.Conv1dTranspose(5, 2, 3, pad_mode="valid", has_bias=True), rows(5, 9)[None]),
    (
        torch.nn.ConvTranspose2d(4, 6, 3, 2, 1),
        nn.Conv2dTranspose(4, 6, 3, 2, "pad", 1, has_bias=True),
        _image(),
    ),
    (torch.nn.Bilinear(4, 4, 2), nn.BiDense(4, 4, 2), (rows(), rows()[::-1].copy())),
    (torch.nn.LSTM(8, 6, 2, bidirectional=True), nn.LSTM(8, 6, 2, bidirectional=True), _sequence()),
    (torch.nn.LSTM(8, 6, bias=False), nn.LSTM(8, 6, has_bias=False), _sequence()),
    (
        torch.nn.GRU(8, 6, 2, bidirectional=True, batch_first=True),
        nn.GRU(8, 6, 2, bidirectional=True, batch_first=True),
        _sequence(),
    ),
    (torch.nn.RNN(8, 6, 2, nonlinearity="relu"), nn.RNN(8, 6, 2, nonlinearity="relu"), _sequence()),
    (torch.nn.LSTMCell(4, 3), nn.LSTMCell(4, 3), (rows(), (rows(5, 3), rows(5, 3)[::-1].copy()))),
    (torch.nn.GRUCell(4, 3), nn.GRUCell(4, 3), (rows(), rows(5, 3))),
    (torch.nn.RNNCell(4, 3), nn.RNNCell(4, 3), (rows(), rows(5, 3))),
]


@pytest.mark.parametrize(("source", "target", "given"), PAIRS, ids=lambda value: type(value).__name__)
def test_transferred_layers_compute_the_same(source: Any, target: Any, given: Any) -> None:
    torch.manual_seed(0)
    for parameter in (*source.parameters(), *source.buffers()):
        if parameter.is_floating_point():
            torch.nn.init.uniform_(parameter, 0.5, 1.5)
    target.set_train(False)
    transfer(source, target)
    given = given if isinstance(given, tuple) else (given,)
    ours = leaves(target(*_converted(given, mindspore.Tensor)), ADAPTER.is_tensor)
    theirs = leaves(source(*_converted(given, torch.tensor)), torch.is_tensor)
    for (_, one), (_, other) in zip(ours, theirs, strict=True):
        # MindSpore's tanh on the CPU is but good to 1e-4, and a recurrent layer takes it many times.
        np.testing.assert_allclose(one.asnumpy(), other.detach().numpy(), rtol=1e-3, atol=1e-3)


def _converted(given: Any, to: Callable[[Array], Any]) -> Any:
    return map_leaves(given, lambda value: isinstance(value, np.ndarray), lambda _, value: to(value))


def test_batch_norm_keeps_the_unbiased_variance() -> None:
    """Hold the fact that judging running statistics rests on: torch does the same, Paddle keeps the biased one."""
    layer, x = nn.BatchNorm1d(4).set_train(), rows()
    layer(mindspore.Tensor(x))
    np.testing.assert_allclose(layer.moving_variance.asnumpy(), 0.9 + 0.1 * x.var(0, ddof=1), rtol=1e-5)


def test_drop_paths_of_third_parties_are_known() -> None:
    from mindcv.models.layers.drop_path import DropPath

    cell = DropPath(0.2)
    rule = ADAPTER.rule(cell)
    assert rule is not None
    assert (rule.kind, rule.settings["p"].value(cell), rule.settings["axis"].value(cell)) == ("dropout", 0.2, "sample")


def test_places_tell_a_model_from_the_library() -> None:
    import mindspore.nn.cell as machinery

    assert machinery.__file__.startswith(ADAPTER.machinery)
    assert nn.Dense.construct.__code__.co_filename.startswith(ADAPTER.library)
    assert not __file__.startswith((*ADAPTER.library, *ADAPTER.machinery))
