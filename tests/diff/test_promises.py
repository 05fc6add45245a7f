"""Hold padiff to its promises: models come back as they were, watching changes nothing, memory is bounded."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import psutil
import pytest

import padiff

from .models import (
    FRAMEWORKS,
    Kit,
    array,
    assert_clean,
    batch_norm_net,
    kit,
    mlp,
    network,
    random_state,
    snapshot,
)

Kits = tuple[Kit, Kit]
X = (array(6, 8),)


def _trained(one: Kit, *, probe: Callable[[Any], None] | None = None, seed: int = 0) -> Any:
    """Return a model that was worked with: trained statistics, gradients, a frozen layer, mixed modes, hooks.

    ``probe`` is called with the value between the layers at every forward.
    """

    def forward(self: Any, x: Any) -> Any:
        y = self.drop(self.norm(self.fc1(x)))
        if probe is not None:
            probe(y)
        return self.head(self.act(self.frozen(y)))

    model = network(
        one,
        forward,
        name="Trained",
        fc1=one.linear(8, 8),
        norm=one.batch_norm(8),
        drop=one.dropout(0.25),
        frozen=one.linear(8, 8),
        act=one.nn.ReLU(),
        idle=one.linear(3, 3),
        head=one.linear(8, 3),
    )
    one.train(model)
    for parameter in one.parameters(model.frozen).values():
        one.freeze(parameter)
    one.eval(model.frozen)
    one.eval(model.act)
    kept = probe
    probe = None
    for step in range(2):
        one.backward(model, one.tensor(array(5, 8, seed=seed + step) * 2 + 1), lambda y: (y * y).sum())
    probe = kept
    model.head.register_forward_pre_hook(lambda *args: None)
    if one.name == "paddle":
        model.fc1.register_forward_post_hook(lambda *args: None)
    else:
        model.fc1.register_forward_hook(lambda *args: None)
        model.fc1.weight.register_hook(lambda gradient: gradient)
    return model


def _switches() -> dict[str, Any]:
    """Return what a run could change for the whole process."""
    import mindspore
    import paddle
    import torch
    from mindspore.common.api import _pynative_executor

    return {
        "mindspore mode": mindspore.get_context("mode"),
        "mindspore grad": _pynative_executor.enable_grad(),
        "torch grad": torch.is_grad_enabled(),
        "torch dtype": torch.get_default_dtype(),
        "torch attention": torch.backends.mha.get_fastpath_enabled(),
        "torch threads": torch.get_num_threads(),
        "paddle grad": paddle.is_grad_enabled(),
        "paddle dtype": paddle.get_default_dtype(),
        "numpy errors": np.geterr(),
    }


@contextmanager
def _unchanged(kits: Kits, models: tuple[Any, Any], *, values: tuple[bool, bool] = (True, True)) -> Iterator[None]:
    """Assert that models, random states and switches are afterwards what they were before."""

    def now() -> list[Any]:
        states = [snapshot(k, m, values=v) for k, m, v in zip(kits, models, values, strict=True)]
        return [*states, random_state(), _switches()]

    before = now()
    yield
    for ours, theirs in zip(before, now(), strict=True):
        changed = {key for key in ours.keys() | theirs.keys() if ours.get(key) != theirs.get(key)}
        assert not changed, {key: (ours.get(key), theirs.get(key)) for key in changed}


# Restored after success -------------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", ["both", "forward", "backward"])
def test_without_transfer_models_are_bit_identical_after(kits: Kits, phase: str) -> None:
    models = _trained(kits[0]), _trained(kits[1], seed=5)
    with _unchanged(kits, models):
        report = padiff.diff(*models, X, transfer=False, phase=phase)
    assert not report.aligned


def test_with_a_loss_models_are_bit_identical_after(kits: Kits) -> None:
    models = _trained(kits[0]), _trained(kits[1], seed=5)
    with _unchanged(kits, models):
        padiff.diff(*models, X, transfer=False, loss=lambda y: (y * y).mean())


def test_settling_suspects_leaves_no_trace(kits: Kits) -> None:
    """Replay the modules that differ, in float64 and under other seeds: the models come back from there too."""
    models = _trained(kits[0]), _trained(kits[1])
    models[1].drop = kits[1].dropout(0.5)
    models[1].act = kits[1].gelu()
    for module in (models[1].drop, models[1].act):
        kits[1].train(module)
    with _unchanged(kits, models, values=(True, False)):
        report = padiff.diff(*models, X)
    assert {found.candidate.path for found in report.sources} >= {"act"}


def test_only_the_transfer_remains(kits: Kits) -> None:
    models = _trained(kits[0]), _trained(kits[1], seed=5)
    with _unchanged(kits, models, values=(True, False)):
        assert_clean_but_idle(padiff.diff(*models, X))
    for name in ("fc1", "frozen", "head"):
        ours, theirs = (getattr(model, name) for model in models)
        assert np.array_equal(kits[0].linear_weight(ours), kits[1].linear_weight(theirs)), name
        assert np.array_equal(kits[0].numpy(ours.bias), kits[1].numpy(theirs.bias)), name


def test_transferred_statistics_remain_too(kits: Kits) -> None:
    reference, port = batch_norm_net(kits[0]), batch_norm_net(kits[1])
    for seed in range(3):
        reference(kits[0].tensor(array(16, 8, seed=seed) * 3 + 1))
    for training in (True, False):
        for one, model in zip(kits, (reference, port), strict=True):
            one.train(model) if training else one.eval(model)
        assert_clean(padiff.diff(reference, port, X))
        ours, theirs = _statistics(kits[0], reference.norm), _statistics(kits[1], port.norm)
        assert np.abs(ours[0]).max() > 0.05
        for mine, yours in zip(ours, theirs, strict=True):
            assert np.array_equal(mine, yours)


def _statistics(one: Kit, norm: Any) -> list[np.ndarray]:
    return [one.numpy(getattr(norm, name)) for name in one.means]


def assert_clean_but_idle(report: padiff.Report) -> None:
    """Assert that nothing parts; the layer that is never called cannot be verified, and is said to be so."""
    assert report.aligned, str(report)
    assert set(report.transfer.unverified) == {"idle.weight", "idle.bias"}


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_counter_comes_back(framework: str) -> None:
    """Plain attributes are part of the model, too."""
    one = kit(framework)

    def forward(self: Any, x: Any) -> Any:
        self.calls = self.calls + 1
        return self.fc(x)

    models = tuple(network(one, forward, fc=one.linear(8, 4), calls=0) for _ in range(2))
    assert_clean(padiff.diff(*models, X))
    assert [model.calls for model in models] == [0, 0]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_cache_that_forward_fills_comes_back(framework: str) -> None:
    """A cache of rotary angles or a mask, filled by a diff, would keep that run's dtype, batch and graph."""
    one = kit(framework)

    def forward(self: Any, x: Any) -> Any:
        if self.cache is None:
            self.cache = one.detach(x) * 0 + 1
        return self.fc(x * self.cache)

    models = tuple(network(one, forward, fc=one.linear(8, 4), cache=None) for _ in range(2))
    assert_clean(padiff.diff(*models, X))
    assert [model.cache for model in models] == [None, None]
    for model in models:
        model(one.tensor(array(2, 8)))


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_inputs_stay_as_they_are(framework: str) -> None:
    one = kit(framework)

    def forward(self: Any, x: Any) -> Any:
        x += 1
        return self.fc(x)

    models = tuple(network(one, forward, fc=one.linear(8, 4)) for _ in range(2))
    values = array(6, 8)
    native = one.tensor(values)
    for given in (values, native):
        assert_clean(padiff.diff(*models, {"x": given}))
        assert np.array_equal(np.asarray(given), array(6, 8))
    if framework != "mindspore":  # whose tensors hold neither
        assert native.grad is None
        assert one.frozen(native)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_diff_inside_no_grad_is_complete_and_leaves_it_on(framework: str) -> None:
    kits = kit(framework), kit(FRAMEWORKS[FRAMEWORKS.index(framework) - 1])
    models = mlp(kits[0]), mlp(kits[1])
    with kits[0].no_grad(), kits[1].no_grad():
        switches = _switches()
        assert switches[f"{framework} grad"] is False
        report = padiff.diff(*models, X, transfer=False, loss=lambda y: y.sum())
        assert _switches() == switches
    assert "backward" not in {note.text for note in report.notes}
    assert not report.aligned
    with kits[0].no_grad():  # one side alone: its inputs get their gradients too
        assert_clean(padiff.diff(*models, X))


# Restored after an exception --------------------------------------------------------------------------------


class Bang(BaseException):
    """Stand for what a user's model may raise, Ctrl-C among it."""


@pytest.mark.parametrize(
    ("side", "error"),
    [(0, RuntimeError), (1, RuntimeError), (0, KeyboardInterrupt), (1, Bang)],
    ids=["reference-RuntimeError", "candidate-RuntimeError", "reference-KeyboardInterrupt", "candidate-Bang"],
)
def test_models_come_back_after_an_exception_in_any_forward(kits: Kits, side: int, error: type) -> None:
    calls = [0]
    fatal = [0]

    def probe(_: Any) -> None:
        calls[0] += 1
        if calls[0] == fatal[0]:
            raise error

    models = tuple(_trained(one, seed=index, probe=probe if index == side else None) for index, one in enumerate(kits))
    padiff.diff(*models, X, transfer=False)
    total, calls[0] = calls[0], 0
    assert total >= 1
    raised = 0
    # What is put back does not depend on the error: two of them are raised in the first, a middle and the last one.
    for index in sorted({1, total, *range(1, total, 3)} if error is RuntimeError else {1, total // 2 + 1, total}):
        calls[0], fatal[0] = 0, index
        with _unchanged(kits, models):
            try:
                padiff.diff(*models, X, transfer=False)
            except (padiff.ForwardError, error):
                raised += 1
        assert calls[0] >= index
    # Where a module is replayed its error is caught: it is evidence that cannot be had.
    assert raised >= 1
    fatal[0] = 0
    padiff.diff(*models, X)


def test_models_come_back_after_an_exception_in_the_loss(kits: Kits) -> None:
    models = _trained(kits[0]), _trained(kits[1], seed=5)

    def loss(_: Any) -> Any:
        msg = "no such loss"
        raise ValueError(msg)

    for losses in ((loss, lambda y: y.sum()), (lambda y: y.sum(), loss)):
        with _unchanged(kits, models), pytest.raises(padiff.PadiffError, match="no such loss"):
            padiff.diff(*models, X, transfer=False, loss=losses)


def test_models_come_back_after_an_exception_in_the_backward_pass(kits: Kits) -> None:
    def bomb(_: Any) -> Any:
        msg = "no such gradient"
        raise RuntimeError(msg)

    def probe(y: Any) -> None:
        y.register_hook(bomb)

    for side in (0, 1):
        spies = [probe if index == side else None for index in (0, 1)]
        models = tuple(_trained(one, probe=spy) for one, spy in zip(kits, spies, strict=True))
        with _unchanged(kits, models), pytest.raises(padiff.ForwardError, match="no such gradient"):
            padiff.diff(*models, X, transfer=False)


def test_models_come_back_after_an_exception_in_an_optimizer(kits: Kits) -> None:
    models = _trained(kits[0]), _trained(kits[1], seed=5)

    def bomb() -> None:
        msg = "no such step"
        raise RuntimeError(msg)

    for optimizers in ((bomb, lambda: None), (lambda: None, bomb)):
        with _unchanged(kits, models), pytest.raises(Exception, match="no such step"):
            padiff.diff(*models, X, transfer=False, optimizers=optimizers)


# Watching changes nothing -----------------------------------------------------------------------------------


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_outputs_are_bit_identical_with_and_without_recording(framework: str) -> None:
    one = kit(framework)
    seen: list[np.ndarray] = []

    def forward(self: Any, x: Any) -> Any:
        y = self.fc1(x)
        y = self.norm(self.drop(y))
        y = y * one.rand(8)
        y[:, 0] = 0.5
        y = self.act(y)
        y = self.fc2(y)
        seen.append(one.numpy(y))
        return y

    layers = {"fc1": one.linear(8, 8), "drop": one.dropout(0.5), "norm": one.batch_norm(8)}
    layers |= {"act": one.gelu(), "fc2": one.linear(8, 8)}
    models = tuple(network(one, forward, **layers) for _ in range(2))
    one.seed(3)
    models[0](one.tensor(X[0]))
    plain = seen.pop()
    for model in models:
        _reset(one, model.norm)
    padiff.diff(*models, X, seed=3, phase="forward")
    reference, candidate = seen[:2]
    assert np.array_equal(plain.view(np.uint32), reference.view(np.uint32))
    assert np.array_equal(plain.view(np.uint32), candidate.view(np.uint32))
    seen.clear()
    padiff.diff(*models, X, seed=3)
    assert np.array_equal(plain.view(np.uint32), seen[0].view(np.uint32))
    assert np.array_equal(plain.view(np.uint32), seen[1].view(np.uint32))


def _reset(one: Kit, norm: Any) -> None:
    for name, start in zip(one.means, (0.0, 1.0), strict=True):
        buffer = getattr(norm, name)
        one.assign(buffer, np.full(tuple(buffer.shape), start, "float32"))


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_gradients_are_bit_identical_with_and_without_recording(framework: str) -> None:
    one = kit(framework)
    seen: list[dict[str, np.ndarray]] = []

    class Spy:
        def __init__(self, model: Any) -> None:
            self.model = model

        def __call__(self) -> None:
            seen.append({name: one.gradient(p) for name, p in one.parameters(self.model).items()})

    models = mlp(one), mlp(one)
    plain = one.backward(models[0], one.tensor(X[0]), lambda y: (y * y).mean())
    padiff.diff(*models, X, loss=lambda y: (y * y).mean(), optimizers=(Spy(models[0]), lambda: None))
    assert seen[0].keys() == plain.keys()
    for name, gradient in plain.items():
        assert np.array_equal(gradient.view(np.uint32), seen[0][name].view(np.uint32)), name


# Memory -----------------------------------------------------------------------------------------------------


def _live() -> Counter[type]:
    """Count what the garbage collector tracks, by type, tensors among it."""
    gc.collect()
    found = Counter(map(type, gc.get_objects()))
    # Paddle forgets one list of argument names for each tensor that it makes.
    del found[list]
    return found


def _tensors(found: Counter[type]) -> int:
    import mindspore
    import paddle
    import torch

    kinds = torch.Tensor | paddle.Tensor | mindspore.Tensor
    return sum(count for cls, count in found.items() if issubclass(cls, kinds))


@pytest.mark.usefixtures("young_heap")
@pytest.mark.parametrize("faulty", [False, True], ids=["clean", "faulty"])
def test_ten_diffs_leave_nothing_behind(kits: Kits, faulty: bool) -> None:
    models = batch_norm_net(kits[0]), batch_norm_net(kits[1], eps=1e-3 if faulty else 1e-5)

    def go() -> None:
        report = padiff.diff(*models, X)
        assert report.aligned is not faulty
        str(report)

    go()
    for _ in range(3):
        before = _live()
        for _ in range(10):
            go()
        after = _live()
        assert _tensors(after) <= _tensors(before)
        grown = {cls: count for cls, count in (after - before).items() if count >= 5}
        if not grown:
            break  # caches (of abstract classes, say) fill once; a leak grows every time
    assert not grown


@pytest.mark.usefixtures("young_heap")
def test_ten_failed_diffs_leave_nothing_behind(kits: Kits) -> None:
    def bomb(y: Any) -> Any:
        msg = "bang"
        raise ValueError(msg)

    models = mlp(kits[0]), mlp(kits[1], after=bomb)

    def go() -> None:
        with pytest.raises(padiff.ForwardError):
            padiff.diff(*models, X)

    for _ in range(3):
        go()
    before = _live()
    for _ in range(10):
        go()
    assert _tensors(_live()) <= _tensors(before)


@pytest.mark.usefixtures("young_heap")
def test_ten_diffs_do_not_grow_the_process(kits: Kits) -> None:
    models = mlp(kits[0], hidden=1024), mlp(kits[1], hidden=1024)
    x = (array(256, 8),)  # each hidden value holds 1 MiB, a diff at least four of them
    process = psutil.Process()
    sizes = []
    for _ in range(13):
        padiff.diff(*models, x)
        gc.collect()
        sizes.append(process.memory_info().rss)
    assert min(sizes[-3:]) - max(sizes[:4]) < 8 * 2**20, sizes


def test_a_report_holds_no_tensor_and_no_model(kits: Kits) -> None:
    import weakref

    models = [mlp(kits[0]), mlp(kits[1], after=lambda y: y * 2)]
    alive = [weakref.ref(model) for model in models]
    report = padiff.diff(*models, X)
    models.clear()
    gc.collect()
    assert [ref() for ref in alive] == [None, None]
    assert not report.aligned


# Import -----------------------------------------------------------------------------------------------------


def _python(code: str) -> str:
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


FOREIGN = ["torch", "paddle", "mindspore", "padiff_torch", "padiff_paddle", "padiff_mindspore"]
HEAVY = ["numpy", "attr", "attrs", "ml_dtypes", "rich", *FOREIGN]


def test_import_is_light() -> None:
    code = f"import sys, padiff; print([name for name in {HEAVY} if name in sys.modules])"
    assert _python(code) == "[]"


def test_reading_the_names_imports_no_framework() -> None:
    code = (
        "import sys, padiff; [getattr(padiff, name) for name in padiff.__all__]; "
        f"print([name for name in {FOREIGN} if name in sys.modules])"
    )
    assert _python(code) == "[]"


def test_a_diff_of_one_framework_does_not_import_the_other() -> None:
    code = (
        "import sys, numpy, torch, padiff; model = torch.nn.Linear(2, 2); "
        "report = padiff.diff(model, torch.nn.Linear(2, 2), (numpy.ones((1, 2), 'float32'),)); "
        "print(report.aligned, 'paddle' in sys.modules)"
    )
    assert _python(code).splitlines()[-1] == "True False"
