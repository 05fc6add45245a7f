"""Step both sides, compare losses and statistics, and let a user's own tolerance decide."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.report import Phase

from .models import Kit, array, assert_clean, batch_norm_net, kit, mlp, network, source, told

Kits = tuple[Kit, Kit]
X = (array(6, 8),)


def _mean_square(y: Any) -> Any:
    return (y * y).mean()


def _pair(kits: Kits, build: Any = mlp) -> tuple[Any, Any]:
    return build(kits[0]), build(kits[1])


def _made(kits: Kits, models: Any, name: str, ours: Any, theirs: Any) -> tuple[Any, Any]:
    return tuple(
        getattr(one, name)(model, **settings) for one, model, settings in zip(kits, models, (ours, theirs), strict=True)
    )


OPTIMIZERS = [
    ("sgd", {"lr": 0.1}),
    ("sgd", {"lr": 0.1, "weight_decay": 0.05}),
    ("sgd", {"lr": 0.1, "momentum": 0.9}),
    ("adam", {"lr": 0.01}),
    ("adamw", {"lr": 0.01, "weight_decay": 0.1}),
]


# Aligned ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "settings"), OPTIMIZERS, ids=str)
@pytest.mark.parametrize("build", [mlp, batch_norm_net])
def test_the_same_training_is_aligned(kits: Kits, build: Any, name: str, settings: Any) -> None:
    models = _pair(kits, build)
    optimizers = _made(kits, models, name, settings, settings)
    assert_clean(padiff.diff(*models, X, optimizers=optimizers, steps=3, loss=_mean_square))


@pytest.mark.parametrize(("name", "settings"), OPTIMIZERS[:2] + OPTIMIZERS[3:], ids=str)
def test_the_steps_are_really_taken(kits: Kits, name: str, settings: Any) -> None:
    models = _pair(kits)
    twin = mlp(kits[0])
    with_same_weights(kits[0], models[0], twin)
    before = _weights(kits[0], models[0])
    optimizers = _made(kits, models, name, settings, settings)
    padiff.diff(*models, X, optimizers=optimizers, steps=3, loss=_mean_square)
    optimizer = getattr(kits[0], name)(twin, **settings)
    for _ in range(3):
        gradients = kits[0].backward(twin, kits[0].tensor(X[0]), _mean_square)
        kits[0].step(optimizer, tuple(map(kits[0].tensor, gradients.values())))
    trained, expected = _weights(kits[0], models[0]), _weights(kits[0], twin)
    for key, value in expected.items():
        assert not np.array_equal(before[key], value), key
        np.testing.assert_allclose(trained[key], value, rtol=1e-5, atol=1e-6)
    theirs = _weights(kits[1], models[1])
    for key, value in trained.items():
        np.testing.assert_array_equal(value, theirs[key])


def with_same_weights(one: Kit, source: Any, target: Any) -> None:
    """Copy a model's weights to its twin."""
    for name, parameter in one.parameters(source).items():
        one.assign(one.parameters(target)[name], one.numpy(parameter))


def _weights(one: Kit, model: Any) -> dict[str, np.ndarray]:
    """Return the weights by path, those of linear layers as (out, in)."""
    found = {name: one.numpy(p) for name, p in one.parameters(model).items()}
    return {name: value.T if one.name == "paddle" and value.ndim == 2 else value for name, value in found.items()}


def test_an_epsilon_in_another_place_is_found() -> None:
    """MindSpore's Adam adds epsilon before it corrects the bias: it is another one where gradients are small."""
    kits = kit("torch"), kit("mindspore")
    models = _pair(kits)
    adams = (one.adam(model, 0.01, eps=1e-6) for one, model in zip(kits, models, strict=True))
    report = padiff.diff(*models, X, optimizers=tuple(adams))
    assert {found.phase for found in report.sources} == {Phase.UPDATE}, told(report)


def test_functions_serve_as_optimizers(kits: Kits) -> None:
    models = _pair(kits)
    made = _made(kits, models, "sgd", {"lr": 0.1}, {"lr": 0.1})

    def stepping(one: Kit, optimizer: Any) -> Any:
        def step() -> None:
            one.step(optimizer)

        return step

    before = _weights(kits[0], models[0])
    functions = tuple(stepping(one, optimizer) for one, optimizer in zip(kits, made, strict=True))
    assert_clean(padiff.diff(*models, X, optimizers=functions, steps=2))
    assert not np.array_equal(before["fc1.weight"], _weights(kits[0], models[0])["fc1.weight"])


def test_a_step_does_not_add_to_gradients_that_were_there(kits: Kits) -> None:
    models = _pair(kits)
    for one, model in zip(kits, models, strict=True):
        one.backward(model, one.tensor(X[0]), lambda y: (y * 100).sum())
    optimizers = _made(kits, models, "sgd", {"lr": 0.1}, {"lr": 0.1})
    assert_clean(padiff.diff(*models, X, optimizers=optimizers, steps=2))


def test_batch_norm_statistics_are_followed_over_the_steps(kits: Kits) -> None:
    x = (array(16, 8) * 3 + 1,)
    models = _pair(kits, batch_norm_net)
    optimizers = _made(kits, models, "sgd", {"lr": 0.05}, {"lr": 0.05})
    assert_clean(padiff.diff(*models, x, optimizers=optimizers, steps=3))
    wrong = batch_norm_net(kits[0]), batch_norm_net(kits[1], momentum=0.2)
    optimizers = _made(kits, wrong, "sgd", {"lr": 0.05}, {"lr": 0.05})
    report = padiff.diff(*wrong, x, optimizers=optimizers, steps=3)
    assert {found.phase for found in report.sources} == {Phase.BUFFER}, told(report)
    assert {found.step for found in report.sources} == {0, 1, 2}, told(report)
    assert all("momentum: 0.1" in found.cause and "0.2" in found.cause for found in report.sources)


# Apart ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "ours", "theirs", "cause"),
    [
        ("sgd", {"lr": 0.1}, {"lr": 0.11}, "lr: 0.1 in the reference, 0.11 in the candidate"),
        (
            "sgd",
            {"weight_decay": 0.01},
            {"weight_decay": 0.0},
            "weight_decay: 0.01 in the reference, 0.0 in the candidate",
        ),
        (
            "adamw",
            {"weight_decay": 0.01},
            {"weight_decay": 0.1},
            "weight_decay: 0.01 in the reference, 0.1 in the candidate",
        ),
        ("adam", {"lr": 1e-3}, {"lr": 2e-3}, "lr: 0.001 in the reference, 0.002 in the candidate"),
    ],
    ids=["lr", "weight decay of SGD", "weight decay of AdamW", "lr of Adam"],
)
def test_another_setting_is_named(kits: Kits, name: str, ours: Any, theirs: Any, cause: str) -> None:
    models = _pair(kits)
    report = padiff.diff(*models, X, optimizers=_made(kits, models, name, ours, theirs))
    assert {found.phase for found in report.sources} == {Phase.UPDATE}, told(report)
    # One optimizer, one fault, however many parameters it steps.
    (found,) = report.sources
    assert cause in found.cause, told(report)
    assert found.cause.verified
    assert found.candidate.path == "", told(report)
    assert {path.rpartition(".")[0] for path in found.evidence[0].figures["paths"]} == {"fc1", "fc2"}, told(report)


def test_other_betas_are_named_where_they_begin_to_matter(kits: Kits) -> None:
    models = _pair(kits)
    # The first step of Adam is the sign of the gradient, whatever the betas.
    settings = {"betas": (0.9, 0.999)}, {"betas": (0.9, 0.95)}
    report = padiff.diff(*models, X, optimizers=_made(kits, models, "adam", *settings), steps=3, loss=_mean_square)
    assert {found.phase for found in report.sources} == {Phase.UPDATE}, told(report)
    assert min(found.step for found in report.sources) >= 1, told(report)
    assert all("beta2: 0.999 in the reference, 0.95 in the candidate" in f.cause for f in report.sources)


def test_another_optimizer_is_named(kits: Kits) -> None:
    models = _pair(kits)
    optimizers = kits[0].adam(models[0], 0.01), kits[1].sgd(models[1], 0.01)
    report = padiff.diff(*models, X, optimizers=optimizers)
    assert {found.phase for found in report.sources} == {Phase.UPDATE}, told(report)
    assert all("class: 'adam' in the reference, 'sgd' in the candidate" in f.cause for f in report.sources)


def test_coupled_and_decoupled_decay_are_told_apart(kits: Kits) -> None:
    models = _pair(kits)
    coupled = kits[0].adam(models[0], 0.01, weight_decay=0.1)
    optimizers = coupled, kits[1].adamw(models[1], 0.01, weight_decay=0.1)
    report = padiff.diff(*models, X, optimizers=optimizers)
    assert {found.phase for found in report.sources} == {Phase.UPDATE}, told(report)
    assert all("class: 'adam' in the reference, 'adamw' in the candidate" in f.cause for f in report.sources)


def test_a_parameter_that_the_optimizer_lacks_is_the_only_one_named(kits: Kits) -> None:
    models = _pair(kits)
    other = kits[1].sgd(models[1], 0.1, without="fc2.bias")
    report = padiff.diff(*models, X, optimizers=(kits[0].sgd(models[0], 0.1), other))
    places = [(f.candidate.path, f.what) for f in report.sources]
    assert places == [("fc2", "bias after the step")], told(report)
    assert [found.cause.name for found in report.sources if found.cause] == ["not_stepped"], told(report)


def test_a_function_that_steps_otherwise_is_found(kits: Kits) -> None:
    models = _pair(kits)
    made = _made(kits, models, "sgd", {"lr": 0.1}, {"lr": 0.2})
    functions = tuple(partial(one.step, optimizer) for one, optimizer in zip(kits, made, strict=True))
    report = padiff.diff(*models, X, optimizers=functions)
    assert [(f.phase, f.candidate.path, f.what) for f in report.sources] == [(Phase.UPDATE, "", "step of 4 parameters")]


def test_a_schedule_on_one_side_only_is_found_at_its_step(kits: Kits) -> None:
    models = _pair(kits)
    made = _made(kits, models, "sgd", {"lr": 0.1}, {"lr": 0.1})
    steps = [0]

    def decaying() -> None:
        kits[1].step(made[1])
        steps[0] += 1
        kits[1].set_lr(made[1], 0.1 * 0.5 ** steps[0])

    report = padiff.diff(*models, X, optimizers=(made[0], decaying), steps=3)
    assert {found.step for found in report.sources} == {1, 2}, told(report)


def test_a_fault_of_the_model_is_found_at_every_step(kits: Kits) -> None:
    models = mlp(kits[0]), mlp(kits[1], after=lambda y: y * 1.1)
    optimizers = _made(kits, models, "sgd", {"lr": 0.1}, {"lr": 0.1})
    report = padiff.diff(*models, X, optimizers=optimizers, steps=2)
    assert {(f.phase, f.candidate.path, f.step) for f in report.sources} == {
        (Phase.FORWARD, "", 0),
        (Phase.FORWARD, "", 1),
    }, told(report)


# Losses -----------------------------------------------------------------------------------------------------


def test_losses_are_reported(kits: Kits) -> None:
    models = _pair(kits)
    report = padiff.diff(*models, X, loss=_mean_square)
    assert_clean(report)
    expected = float(_mean_square(models[0](kits[0].tensor(X[0]))).item())
    assert report.loss[0] == pytest.approx(expected, rel=1e-6)
    assert report.loss[1] == pytest.approx(expected, rel=1e-5)
    assert padiff.diff(*models, X).loss is None


def test_a_pair_of_losses_serves_each_side(kits: Kits) -> None:
    target = array(6, 4, seed=9)

    def loss_of(one: Kit) -> Any:
        return lambda y: one.functional.mse_loss(y, one.tensor(target))

    losses = loss_of(kits[0]), loss_of(kits[1])
    models = _pair(kits)
    report = padiff.diff(*models, X, loss=losses)
    assert_clean(report)
    y = kits[0].numpy(models[0](kits[0].tensor(X[0])))
    assert report.loss[0] == pytest.approx(float(((y - target) ** 2).mean()), rel=1e-5)


def test_the_loss_of_one_framework_class_serves_each_side(kits: Kits) -> None:
    models = _pair(kits)
    labels = np.array([0, 1, 2, 3, 0, 1])

    def loss_of(one: Kit) -> Any:
        return lambda y: one.cross_entropy(y, labels)

    assert_clean(padiff.diff(*models, X, loss=(loss_of(kits[0]), loss_of(kits[1]))))


def test_a_loss_of_half_the_size_is_a_finding_of_the_loss(kits: Kits) -> None:
    report = padiff.diff(*_pair(kits), X, loss=(_mean_square, lambda y: _mean_square(y) / 2))
    assert {found.phase for found in report.sources} == {Phase.LOSS}, told(report)
    assert report.loss[1] == pytest.approx(report.loss[0] / 2, rel=1e-5)


def test_a_loss_with_the_right_value_and_the_wrong_gradient_is_found(kits: Kits) -> None:
    def detached(y: Any) -> Any:
        return (y * kits[1].detach(y)).mean()

    report = padiff.diff(*_pair(kits), X, loss=(_mean_square, detached))
    assert {found.phase for found in report.sources} == {Phase.LOSS}, told(report)
    assert "gradient" in report.sources[0].what


def test_a_mean_against_a_sum_is_found(kits: Kits) -> None:
    report = padiff.diff(*_pair(kits), X, loss=(_mean_square, lambda y: (y * y).sum()))
    assert {found.phase for found in report.sources} == {Phase.LOSS}, told(report)


# Tolerances -------------------------------------------------------------------------------------------------


def _spiked(kits: Kits, height: float, *, rows: int = 16, columns: int = 8192) -> tuple[Any, Any]:
    spike = np.zeros((rows, columns), np.float32)
    spike[3, 77] = height

    def build(one: Kit, extra: Any) -> Any:
        def forward(self: Any, x: Any) -> Any:
            return self.fc(x) + extra

        return network(one, forward, fc=one.linear(8, columns))

    return build(kits[0], kits[0].tensor(spike * 0)), build(kits[1], kits[1].tensor(spike))


def test_strict_looks_at_every_element_and_mean_at_the_mean_error(kits: Kits) -> None:
    x = (array(16, 8),)
    models = _spiked(kits, 5.0)

    def aligned(**tolerance: Any) -> bool:
        return padiff.diff(*models, x, tolerance=tolerance, phase="forward").aligned

    # 5 / 131072 = 3.8e-5
    assert aligned(atol=1e-4, rtol=1e-4, compare_mode="mean")
    assert not aligned(atol=1e-5, rtol=1e-7, compare_mode="mean")
    assert not aligned(atol=4.9, rtol=1e-5, compare_mode="strict")
    assert aligned(atol=5.1, rtol=1e-5, compare_mode="strict")


def test_the_rule_without_a_mode_is_mean(kits: Kits) -> None:
    models = _spiked(kits, 5.0)
    x = (array(16, 8),)
    assert padiff.diff(*models, x, tolerance={"atol": 1e-4, "rtol": 1e-4}, phase="forward").aligned


def test_atol_and_rtol_are_those_of_allclose(kits: Kits) -> None:
    def models(factor: float, shift: float) -> tuple[Any, Any]:
        return mlp(kits[0]), mlp(kits[1], after=lambda y: y * factor + shift)

    def aligned(factor: float, shift: float, **tolerance: Any) -> bool:
        rule = {"compare_mode": "strict", **tolerance}
        return padiff.diff(*models(factor, shift), X, tolerance=rule, phase="forward").aligned

    assert aligned(1.01, 0.0, atol=1e-5, rtol=0.011)
    assert not aligned(1.01, 0.0, atol=1e-5, rtol=0.009)
    assert aligned(1.0, 0.01, atol=0.011, rtol=1e-5)
    assert not aligned(1.0, 0.01, atol=0.009, rtol=1e-5)


def test_a_rule_names_the_place_and_says_what_it_rests_on(kits: Kits) -> None:
    models = mlp(kits[0]), mlp(kits[1], after=lambda y: y * 1.5)
    report = padiff.diff(*models, X, tolerance={"atol": 1e-4, "rtol": 1e-4, "compare_mode": "strict"})
    found = source(report, Phase.FORWARD, "")
    assert found.between == ("fc2", "end")
    assert "outside the given tolerance" in found.evidence


STRICT = {"atol": 1e-2, "rtol": 1e-2, "compare_mode": "strict"}


def test_a_rule_governs_gradients(kits: Kits) -> None:
    def hooked(factor: float) -> Any:
        def forward(self: Any, x: Any) -> Any:
            h = self.act(self.fc1(x)) * 1.0
            h.register_hook(lambda gradient: gradient * factor)
            return self.fc2(h)

        port = mlp(kits[1])
        layers = {"fc1": port.fc1, "act": port.act, "fc2": port.fc2}
        return mlp(kits[0]), network(kits[1], forward, **layers)

    assert padiff.diff(*hooked(1.001), X, tolerance=STRICT).aligned
    report = padiff.diff(*hooked(3.0), X, tolerance=STRICT)
    assert {found.phase for found in report.sources} == {Phase.BACKWARD}, told(report)


def test_a_rule_governs_the_loss(kits: Kits) -> None:
    def losses(shift: float) -> Any:
        return _mean_square, lambda y: _mean_square(y) + shift

    assert padiff.diff(*_pair(kits), X, loss=losses(1e-3), tolerance=STRICT).aligned
    report = padiff.diff(*_pair(kits), X, loss=losses(1.0), tolerance=STRICT)
    assert {found.phase for found in report.sources} == {Phase.LOSS}, told(report)


def test_a_rule_governs_buffers(kits: Kits) -> None:
    x = (array(16, 8),)

    def momenta(other: float) -> Any:
        return batch_norm_net(kits[0]), batch_norm_net(kits[1], momentum=other)

    assert padiff.diff(*momenta(0.1001), x, tolerance=STRICT).aligned
    report = padiff.diff(*momenta(0.9), x, tolerance=STRICT)
    assert {found.phase for found in report.sources} == {Phase.BUFFER}, told(report)


def test_a_rule_governs_parameters(kits: Kits) -> None:
    models = _pair(kits)
    padiff.diff(*models, X)
    _shift(kits[1], models[1].fc2.bias, 1e-3)
    assert not padiff.diff(*models, X, transfer=False).aligned
    assert padiff.diff(*models, X, transfer=False, tolerance=STRICT).aligned
    _shift(kits[1], models[1].fc2.bias, 1.0)
    report = padiff.diff(*models, X, transfer=False, tolerance=STRICT)
    assert {found.phase for found in report.sources} == {Phase.PARAMETER}, told(report)


def _shift(one: Kit, parameter: Any, by: float) -> None:
    one.assign(parameter, one.numpy(parameter) + np.float32(by))


def test_a_rule_governs_the_update(kits: Kits) -> None:
    def run(lr: float) -> padiff.Report:
        models = _pair(kits)
        optimizers = _made(kits, models, "sgd", {"lr": 0.1}, {"lr": lr})
        return padiff.diff(*models, X, optimizers=optimizers, tolerance=STRICT, loss=lambda y: y.sum())

    assert run(0.1001).aligned
    assert {found.phase for found in run(10.0).sources} == {Phase.UPDATE}


def test_an_empty_tolerance_is_the_documented_rule() -> None:
    """An empty dict asks for PaDiff's own 0 and 1e-7, which float32 does not keep: the user's words count."""
    # Some processors give two frameworks' products the same bits.
    models = mlp(kit("torch")), mlp(kit("paddle"), after=lambda y: (y + 4.0) - 4.0)
    x = (array(64, 8),)
    assert not padiff.diff(*models, x, tolerance={"atol": 0.0, "rtol": 0.0}).aligned
    assert_clean(padiff.diff(*models, x))


# Groups -----------------------------------------------------------------------------------------------------


def test_groups_are_compared_parameter_by_parameter() -> None:
    import paddle
    import torch

    def sides(share: float) -> tuple[Any, Any, Any, Any]:
        ours = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))
        theirs = paddle.nn.Sequential(paddle.nn.Linear(8, 16), paddle.nn.Tanh(), paddle.nn.Linear(16, 4))
        groups = [{"params": ours[0].parameters(), "lr": 0.05}, {"params": ours[2].parameters()}]
        # Paddle's is a share of the optimizer's rate, torch's a rate.
        others = [{"params": theirs[0].parameters(), "learning_rate": share}, {"params": theirs[2].parameters()}]
        return ours, theirs, torch.optim.SGD(groups, 0.1), paddle.optimizer.SGD(0.1, others)

    ours, theirs, *optimizers = sides(0.5)
    assert_clean(padiff.diff(ours, theirs, X, optimizers=tuple(optimizers)))
    ours, theirs, *optimizers = sides(0.05)
    report = padiff.diff(ours, theirs, X, optimizers=tuple(optimizers))
    assert {found.candidate.path for found in report.sources} == {"0"}, told(report)
    for found in report.sources:
        assert found.cause == "lr: 0.05 in the reference, 0.005 in the candidate", told(report)
        assert found.cause.verified


def test_a_smoothing_has_one_name_and_an_epsilon_its_place() -> None:
    import paddle
    import torch

    ours, theirs = torch.nn.Linear(8, 4, bias=False), paddle.nn.Linear(8, 4, bias_attr=False)
    optimizers = (
        torch.optim.RMSprop(ours.parameters(), 0.01, alpha=0.95),
        paddle.optimizer.RMSProp(0.01, rho=0.95, epsilon=1e-8, parameters=theirs.parameters()),
    )
    report = padiff.diff(ours, theirs, X, optimizers=optimizers, loss=lambda y: _mean_square(y) * 1e-5)
    assert {str(found.cause) for found in report.sources} == {
        "eps_place: 'added to the root' in the reference, 'added under the root' in the candidate"
    }, told(report)


def test_a_bias_of_one_number_is_stepped_by_the_same_rule_as_all_else() -> None:
    """A step of one number is a multiple of any other: it was a source of its own, without a cause."""
    import paddle
    import torch

    ours = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Linear(4, 1))
    theirs = paddle.nn.Sequential(paddle.nn.Linear(8, 4), paddle.nn.Linear(4, 1))
    optimizers = (
        torch.optim.RMSprop(ours.parameters(), 0.01, eps=0.01),
        paddle.optimizer.RMSProp(0.01, rho=0.99, epsilon=0.01, parameters=theirs.parameters()),
    )
    (source,) = padiff.diff(ours, theirs, X, optimizers=optimizers, loss=_mean_square).sources
    assert str(source.cause).startswith("eps_place: 'added to the root' in the reference"), source
    assert source.what.name == "4 parameters"


@pytest.mark.parametrize("rate", [0.01, 0.02])
def test_a_rule_of_a_framework_is_the_cause_where_no_setting_is(rate: float) -> None:
    """MindSpore's Adam adds its epsilon before the bias is corrected: it had no cause, and is so in each such pair."""
    import mindspore
    import torch

    ours, theirs = torch.nn.Linear(8, 4), mindspore.nn.Dense(8, 4)
    optimizers = (
        torch.optim.Adam(ours.parameters(), 0.01, eps=1e-3),
        mindspore.nn.Adam(theirs.trainable_params(), rate, eps=1e-3),
    )
    report = padiff.diff(ours, theirs, X, optimizers=optimizers, loss=_mean_square)
    names = {name for found in report.sources if found.cause is not None for name in found.cause.parameters}
    assert names == ({"eps_place"} if rate == 0.01 else {"lr", "eps_place"}), told(report)


@pytest.mark.parametrize(("scale", "divisor"), [(64.0, 1.0), (1.0, 4.0)])
def test_what_an_adam_of_another_rule_is_given_counts_as_it_divides_it(
    tmp_path: Path, scale: float, divisor: float
) -> None:
    """Its steps are as long: gradients that are divided twice passed, and a scale that it takes back was an alarm."""
    import mindspore
    import torch

    ours, theirs = torch.nn.Linear(8, 4), mindspore.nn.Dense(8, 4)
    padiff.transfer(ours, theirs)
    optimizer = torch.optim.Adam(ours.parameters(), 0.01, eps=1e-30)
    with padiff.record(ours, tmp_path / "a", optimizer=optimizer) as recorder:
        _mean_square(ours(torch.from_numpy(X[0]))).backward()
        optimizer.step()
        recorder.step()
    optimizer = mindspore.nn.Adam(theirs.trainable_params(), 0.01, eps=1e-30, loss_scale=scale)
    run = mindspore.value_and_grad(lambda x: _mean_square(theirs(x)) * scale, None, optimizer.parameters)
    with padiff.record(theirs, tmp_path / "b", optimizer=optimizer) as recorder:
        optimizer(tuple(one / divisor for one in run(mindspore.Tensor(X[0]))[1]))
        recorder.step()
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert [list(found.cause.parameters) for found in report.sources] == ([["gradients"]] if divisor > 1 else [])
    assert report.aligned is (divisor == 1), told(report)


@pytest.mark.parametrize("divided", [True, False])
def test_a_fused_step_takes_back_a_scale_itself(tmp_path: Path, divided: bool) -> None:
    """torch's gradient scaler leaves it to such an optimizer, of which it was not seen."""
    import torch

    models = torch.nn.Linear(8, 4), torch.nn.Linear(8, 4)
    padiff.transfer(*models)
    for name, model, scaler in zip("ab", models, (None, torch.amp.GradScaler("cpu", init_scale=64.0)), strict=True):
        optimizer = torch.optim.Adam(model.parameters(), 0.01, fused=True)
        with padiff.record(model, tmp_path / name) as recorder:
            loss = _mean_square(model(torch.from_numpy(X[0])))
            (loss if scaler is None else scaler.scale(loss)).backward()
            optimizer.step() if scaler is None or not divided else scaler.step(optimizer)
            recorder.step()
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert report.aligned is divided, told(report)


def test_clipping_on_one_side_is_named(kits: Kits) -> None:
    models = _pair(kits)
    made = _made(kits, models, "sgd", {"lr": 0.1}, {"lr": 0.025})
    functions = tuple(partial(one.step, optimizer) for one, optimizer in zip(kits, made, strict=True))
    report = padiff.diff(*models, X, optimizers=functions)
    assert all(found.cause is not None and "is 0.25 times" in found.cause for found in report.sources), told(report)


@pytest.mark.parametrize("steps", [1, 2])
def test_a_setting_that_the_weights_do_not_show_yet_is_noted(kits: Kits, steps: int) -> None:
    """A momentum shows from the second step on: one step was aligned, and nothing told that another one follows."""
    models = _pair(kits)
    optimizers = _made(kits, models, "sgd", {"lr": 0.1, "momentum": 0.9}, {"lr": 0.1, "momentum": 0.8})
    report = padiff.diff(*models, X, optimizers=optimizers, steps=steps, loss=_mean_square)
    noted = [note.data["name"] for note in report.notes if note.kind == "optimizer_setting"]
    assert report.aligned is (steps == 1), str(report)
    assert noted == ["momentum"] * (steps == 1), str(report)
