"""Check what is Flax's alone: classes instead of hooks, state in variables, generators inside models."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen, nnx

import padiff
from padiff.plugins import adapter_for
from padiff.testing import Log

RNGS = nnx.Rngs(0)
X = np.random.default_rng(0).standard_normal((2, 3, 4), dtype=np.float32)


class Base(nnx.Module):
    def __init__(self) -> None:
        self.linear = nnx.Linear(4, 4, rngs=RNGS)

    def __call__(self, x: Any) -> Any:
        return self.linear(x) * 2


class Heir(Base):
    def __call__(self, x: Any) -> Any:
        return super().__call__(x) + 1


class Silent(Heir):
    """Inherit everything."""


class Family(nnx.Module):
    def __init__(self) -> None:
        self.all = nnx.List([Base(), Heir(), Silent()])

    def __call__(self, x: Any) -> Any:
        for one in self.all:
            x = one(x)
        return x


def watched(native: Any, *args: Any, **kwargs: Any) -> tuple[Log, Any]:
    model, log = adapter_for(native).wrap(native), Log()
    with model.attach(log):
        output = model.run(tuple(jnp.asarray(one) for one in args), kwargs)
    return log, output


def test_an_inherited_call_is_reported_once() -> None:
    log, _ = watched(Family(), X)
    assert log.calls == ["", *(path for i in range(3) for path in (f"all.{i}", f"all.{i}.linear"))]


def test_classes_are_left_as_they_were() -> None:
    before = [cls.__dict__.get("__call__") for cls in (Base, Heir, Silent, nnx.Linear, Family)]
    model, log = adapter_for(family := Family()).wrap(family), Log()
    one, two = model.attach(log), model.attach(Log())
    assert Silent.__dict__.get("__call__") is not None
    one.close()  # not the last that was opened
    family(jnp.asarray(X))
    assert log.events == []
    two.close()
    assert [cls.__dict__.get("__call__") for cls in (Base, Heir, Silent, nnx.Linear, Family)] == before


def test_other_models_of_the_same_classes_are_not_reported() -> None:
    native, other, log = Base(), Base(), Log()
    with adapter_for(native).wrap(native).attach(log):
        other(jnp.asarray(X))
    assert log.events == []


def test_what_runs_under_a_transformation_is_part_of_the_call_around_it() -> None:
    class Layers(nnx.Module):
        def __init__(self) -> None:
            self.rnn = nnx.RNN(nnx.GRUCell(4, 5, rngs=RNGS))
            self.linear = nnx.Linear(5, 5, rngs=RNGS)

        def __call__(self, x: Any) -> Any:
            return nnx.remat(lambda linear, y: linear(y))(self.linear, self.rnn(x))

    log, output = watched(Layers(), X)
    assert log.calls == ["", "rnn"]
    assert output.shape == (2, 3, 5)


class Jitted(nnx.Module):
    @nnx.jit
    def __call__(self, x: Any) -> Any:
        return x


class Holds(nnx.Module):
    def __init__(self, held: Any) -> None:
        self.held = held

    def __call__(self, x: Any) -> Any:
        return self.held(x)


class NoCall(nnx.Module):
    pass


with nnx.var_defaults(ref=True):
    WITH_REFS = Base()


@pytest.mark.parametrize(
    ("native", "message"),
    [
        (nnx.jit(Base()), r"model .*JitWrapped.* compiled(.|\n)*without nnx\.jit"),
        (jax.jit(Base()), "compiled"),
        (Jitted(), r"__call__ of the model .*Jitted"),
        (Holds(Jitted()), "__call__ of the submodule 'held'"),
        (Holds(nnx.jit(Base())), "submodule 'held' is compiled"),
        (NoCall(), "no __call__"),
        (linen.Dense(3), r"not a flax\.nnx\.Module(.|\n)*ToNNX"),
        (WITH_REFS, "'linear.kernel' of .*Base is a mutable reference"),
    ],
    ids=["nnx.jit", "jax.jit", "method", "submodule's method", "submodule", "no call", "linen", "references"],
)
def test_what_cannot_be_watched_is_refused(native: Any, message: str) -> None:
    with pytest.raises(padiff.UnwatchableModel, match=rf"{message}(.|\n)*"):
        padiff.diff(Base(), native, {"x": X})


def test_compiled_functions_inside_are_no_obstacle() -> None:
    class Uses(nnx.Module):
        def __init__(self) -> None:
            self.linear = nnx.Linear(4, 4, rngs=RNGS)
            self.act = jax.jit(jnp.tanh)

        def __call__(self, x: Any) -> Any:
            return self.act(self.linear(x)) + jax.nn.gelu(x)

    assert padiff.diff(Uses(), Uses(), {"x": X}).aligned


def test_parameters_lie_wherever_variables_do() -> None:
    class Odd(nnx.Module):
        def __init__(self) -> None:
            self.scales = nnx.Dict(a=nnx.Param(jnp.ones(4)), b=nnx.Param(jnp.ones(4)))
            self.pair = nnx.data((nnx.Param(jnp.zeros(4)), nnx.BatchStat(jnp.zeros(4))))
            self.tied = self.scales["a"]
            self.dropout = nnx.Dropout(0.5, rngs=nnx.Rngs(0))
            self.constant = jnp.ones(4)

        def __call__(self, x: Any) -> Any:
            return x * self.scales["a"] * self.tied + self.pair[0] + self.scales["b"] * self.constant

    found = adapter_for(native := Odd()).wrap(native).parameters()
    assert {path: parameter.paths for path, parameter in found.items()} == {
        "scales.a": ("scales.a", "tied"),
        "scales.b": ("scales.b",),
        "pair.0": ("pair.0",),
        "pair.1": ("pair.1",),
    }
    assert [path for path, parameter in found.items() if parameter.buffer] == ["pair.1"]


def test_containers_are_modules_that_nobody_calls() -> None:
    modules = adapter_for(native := Family()).wrap(native).modules()
    assert list(modules)[:3] == ["", "all", "all.0"]
    with pytest.raises(TypeError, match=r"flax\.nnx\.helpers\.List has no __call__"):
        modules["all"].forward(X)


def test_gradients_are_those_of_nnx_grad() -> None:
    native = Family()
    model = adapter_for(native).wrap(native)
    model.run((jnp.asarray(X),), {}, lambda output: [((output**2).sum(), None)])
    expected = nnx.grad(lambda one: (one(jnp.asarray(X)) ** 2).sum())(native)
    for path, parameter in model.parameters().items():
        wanted: Any = expected
        for name in path.split("."):
            wanted = wanted[int(name) if name.isdigit() else name]
        np.testing.assert_allclose(parameter.gradient(), np.asarray(wanted[...]), rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore:Using 'Module.sow:DeprecationWarning")
def test_what_a_model_keeps_of_a_run_is_undone_and_never_on_the_tape() -> None:
    class Keeps(nnx.Module):
        def __init__(self) -> None:
            self.linear = nnx.Linear(4, 4, rngs=RNGS)
            self.last = nnx.Variable(jnp.zeros((2, 3, 4)))
            self.plain: Any = nnx.data(None)

        def __call__(self, x: Any) -> Any:
            self.last[...] = self.plain = self.linear(x)
            self.sow(nnx.Intermediate, "sown", self.plain)
            return self.plain

    native = Keeps()
    model = adapter_for(native).wrap(native)
    with model.preserved():
        model.run((jnp.asarray(X),), {})
        for value in (native.last[...], native.plain, native.sown.get_value()[0]):
            assert not isinstance(value, jax.core.Tracer)
            assert np.asarray(value).any()
    assert not np.asarray(native.last[...]).any()
    assert native.plain is None
    assert not hasattr(native, "sown")
    assert native(jnp.asarray(X)).shape == (2, 3, 4)


def test_generators_that_are_passed_in_are_put_back() -> None:
    class Noisy(nnx.Module):
        def __init__(self) -> None:
            self.linear = nnx.Linear(4, 4, rngs=RNGS)
            self.dropout = nnx.Dropout(0.5)

        def __call__(self, x: Any, rngs: Any) -> Any:
            return self.dropout(self.linear(x), rngs=rngs)

    given = nnx.Rngs(dropout=3)
    before = jax.random.key_data(given.dropout.key[...]), int(given.dropout.count[...])
    report = padiff.diff(Noisy(), Noisy(), {"x": X, "rngs": given})
    assert report.aligned, report
    assert (jax.random.key_data(given.dropout.key[...]) == before[0]).all()
    assert int(given.dropout.count[...]) == before[1]


class Policy(nnx.Module):
    def __init__(self, dtype: Any) -> None:
        self.first, self.second = (nnx.Linear(4, 4, dtype=dtype, rngs=RNGS) for _ in range(2))

    def __call__(self, x: Any) -> Any:
        return self.second(jnp.tanh(self.first(x)))


def test_a_policy_of_narrower_types_is_precision() -> None:
    report = padiff.diff(Policy(jnp.float32), narrow := Policy(jnp.bfloat16), {"x": X})
    assert report.aligned, str(report)
    assert report.counts["precision"] >= 1
    assert narrow.first.dtype == jnp.bfloat16


def test_what_modules_compute_in_is_lifted_with_them() -> None:
    native = nnx.RNN(nnx.OptimizedLSTMCell(4, 4, dtype=jnp.bfloat16, rngs=RNGS))
    model = adapter_for(native).wrap(native)
    with model.lifted("float64"):
        assert model.run((jnp.asarray(X),), {}).dtype == jnp.float64
    assert (native.cell.dtype, native.cell.param_dtype) == (jnp.bfloat16, jnp.float32)


def test_64_bits_are_kept_where_a_tensor_has_them_and_inputs_are_as_jax_takes_them() -> None:
    adapter = adapter_for(Base())
    assert adapter.tensor(adapter.from_numpy(np.arange(3))).dtype == "int64"
    assert adapter.tensor(adapter.convert(np.arange(3), device="cpu")).dtype == "int32"
    assert padiff.diff(nnx.Embed(5, 4, rngs=RNGS), nnx.Embed(5, 4, rngs=RNGS), (np.arange(3),)).aligned


@pytest.mark.parametrize("make", [nnx.Optimizer, nnx.ModelAndOptimizer])
def test_optimizers_step_with_the_gradients_of_the_run(make: Any) -> None:
    def steps(rate: float) -> padiff.Report:
        models = Base(), Base()
        optimizers = [
            make(model, optax.inject_hyperparams(optax.adamw)(one), wrt=nnx.Param)
            for model, one in zip(models, (1e-3, rate), strict=True)
        ]
        return padiff.diff(*models, {"x": X}, optimizers=optimizers, steps=2)

    assert steps(1e-3).aligned
    report = steps(2e-3)
    assert {source.phase for source in report.sources} == {padiff.Phase.UPDATE}
    assert "lr: 0.001 in the reference, 0.002 in the candidate" in (report.sources[0].cause or "")


def test_ten_diffs_leave_nothing_behind() -> None:
    import gc

    models = Base(), Heir()

    def count() -> int:
        padiff.diff(*models, {"x": X})
        gc.collect()
        return len(jax.live_arrays())

    count()
    first = count()
    assert [count() for _ in range(8)] == [first] * 8
