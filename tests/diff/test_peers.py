"""Show padiff right where PaDiff 0.3 was wrong: passes, alarms, places, crashes and side effects."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import psutil
import pytest

import padiff
from padiff.report import Phase, Verdict

from .models import (
    FRAMEWORKS,
    Kit,
    array,
    assert_clean,
    batch_norm_net,
    blocks,
    kit,
    mlp,
    network,
    paths,
    source,
    told,
)

Kits = tuple[Kit, Kit]
X = (array(4, 8),)


# Passes that are wrong --------------------------------------------------------------------------------------


def test_flipped_features_part(kits: Kits) -> None:
    reference, candidate = kits
    port = mlp(candidate, after=lambda y: candidate.flip(y))
    report = padiff.diff(mlp(reference), port, X)
    found = source(report, Phase.FORWARD, "")
    assert found.between == ("fc2", "end")
    assert found.what == "output"
    assert found.figures.max_abs > 0.1
    mean = {"atol": 1e-4, "rtol": 1e-4, "compare_mode": "mean"}
    source(padiff.diff(mlp(reference), port, X, tolerance=mean), Phase.FORWARD, "")


@pytest.mark.parametrize("rows", [4, 6], ids=["square", "oblong"])
def test_a_transposed_output_parts(kits: Kits, rows: int) -> None:
    port = mlp(kits[1], after=lambda y: y.t())
    report = padiff.diff(mlp(kits[0]), port, (array(rows, 8),))
    found = source(report, Phase.FORWARD, "")
    assert "output" in found.what
    assert {one.phase for one in report.sources} == {Phase.FORWARD}, told(report)
    if rows != 4:
        said = " ".join(f"{one.evidence} {one.cause}" for one in report.sources)
        assert "[6, 4]" in said
        assert "[4, 6]" in said


def test_unrelated_weights_behind_a_layer_norm_part(kits: Kits) -> None:
    def build(kit: Kit) -> Any:
        return network(kit, lambda self, x: self.norm(self.fc(x)), fc=kit.linear(8, 64), norm=kit.layer_norm(64))

    report = padiff.diff(build(kits[0]), build(kits[1]), X, transfer=False)
    found = source(report, Phase.PARAMETER, "fc")
    assert found.what == "parameter weight"
    assert found.verdict is Verdict.DIFFERS
    assert "before any run" in " ".join(found.evidence)


def test_one_of_131072_elements_off_by_five_parts(kits: Kits) -> None:
    spike = np.zeros((16, 8192), np.float32)
    spike[3, 77] = 5.0

    def build(kit: Kit, extra: Any = None) -> Any:
        def forward(self: Any, x: Any) -> Any:
            y = self.fc(x)
            return y if extra is None else y + extra

        return network(kit, forward, fc=kit.linear(8, 8192))

    x = (array(16, 8),)
    report = padiff.diff(build(kits[0]), build(kits[1], kits[1].tensor(spike)), x)
    found = source(report, Phase.FORWARD, "")
    assert found.between == ("fc", "end")
    assert found.figures.max_abs == pytest.approx(5.0, rel=1e-5)


def test_three_bugs_in_a_row_are_all_listed(kits: Kits) -> None:
    port = blocks(kits[1], depth=5, factors={1: 1.5, 2: 1.5, 3: 1.5})
    report = padiff.diff(blocks(kits[0], depth=5), port, X)
    assert not report.aligned
    assert paths(report) == ["blocks.1", "blocks.2", "blocks.3"], told(report)
    assert all(found.phase is Phase.FORWARD for found in report.sources)


@pytest.mark.parametrize("where", ["on the input", "behind the input"])
def test_an_input_gradient_five_times_too_large_parts(kits: Kits, where: str) -> None:
    def forward(self: Any, x: Any) -> Any:
        y = x if where == "on the input" else x * 1.0
        y.register_hook(lambda gradient: gradient * 5)
        return self.fc2(self.act(self.fc1(y)))

    nn = kits[1].nn
    port = network(kits[1], forward, fc1=kits[1].linear(8, 16), act=nn.ReLU(), fc2=kits[1].linear(16, 4))
    report = padiff.diff(mlp(kits[0]), port, X)
    found = source(report, Phase.BACKWARD, "")
    assert "gradient of input" in found.what
    assert found.figures.rel_l2 == pytest.approx(4.0, rel=1e-3)


def test_an_activation_gradient_five_times_too_large_parts_in_its_module(kits: Kits) -> None:
    def build(kit: Kit, factor: float) -> Any:
        def neck(self: Any, x: Any) -> Any:
            y = self.fc(x)
            if factor != 1 and not (kit.name == "paddle" and y.stop_gradient):
                y.register_hook(lambda gradient: gradient * factor)
            return y * 2.0

        necks = kit.modules(network(kit, neck, name="Neck", fc=kit.linear(8, 8)) for _ in range(3))

        def forward(self: Any, x: Any) -> Any:
            for layer in self.necks:
                x = layer(x)
            return x

        return network(kit, forward, necks=necks)

    model = build(kits[1], 1.0)
    wrong = build(kits[1], 5.0)
    model.necks[1] = wrong.necks[1]
    report = padiff.diff(build(kits[0], 1.0), model, X)
    assert set(paths(report)) <= {"necks.1", "necks.1.fc"}, told(report)
    assert {found.phase for found in report.sources} == {Phase.BACKWARD}, told(report)


def test_a_loss_that_is_100_too_large_parts(kits: Kits) -> None:
    def mean_square(y: Any) -> Any:
        return (y * y).mean()

    def wrong(y: Any) -> Any:
        return mean_square(y) + 100

    report = padiff.diff(mlp(kits[0]), mlp(kits[1]), X, loss=(mean_square, wrong))
    found = source(report, Phase.LOSS, "")
    assert found.figures.max_abs == pytest.approx(100, rel=1e-4)
    assert found.candidate.location.startswith(f"{__file__}:")
    assert report.loss[1] - report.loss[0] == pytest.approx(100, rel=1e-4)


@pytest.mark.parametrize("side", ["reference", "candidate"])
def test_a_missing_bias_parts(kits: Kits, side: str) -> None:
    report = padiff.diff(mlp(kits[0], bias=side != "reference"), mlp(kits[1], bias=side != "candidate"), X)
    found = source(report, Phase.PARAMETER, "fc2", alone=False)
    assert set(paths(report)) == {"fc2"}, told(report)
    assert found.verdict is Verdict.UNMATCHED
    assert found.what == "parameter bias"
    other = "reference" if side == "candidate" else "candidate"
    assert f"the {other} has fc2.bias [4]" in " ".join(found.evidence)


def test_another_batch_norm_momentum_parts(kits: Kits) -> None:
    x = (array(16, 8) * 3 + 1,)
    report = padiff.diff(batch_norm_net(kits[0]), batch_norm_net(kits[1], momentum=0.9), x)
    assert set(paths(report)) == {"norm"}, told(report)
    assert {found.phase for found in report.sources} == {Phase.BUFFER}
    named = {found.what for found in report.sources}
    assert any(kits[1].means[0] in what for what in named), named
    for found in report.sources:
        assert "momentum: 0.1" in found.cause
        assert "0.9" in found.cause


def test_nan_of_the_candidate_parts(kits: Kits) -> None:
    nan = np.zeros((4, 4), np.float32)
    nan[1, 2] = np.nan
    port = mlp(kits[1], after=lambda y: y + kits[1].tensor(nan))
    for tolerance in (None, {"atol": 1e3}, {"atol": 1e3, "compare_mode": "strict"}):
        found = source(padiff.diff(mlp(kits[0]), port, X, tolerance=tolerance), Phase.FORWARD, "")
        assert found.between == ("fc2", "end")


def test_nan_at_other_positions_is_no_pass(kits: Kits) -> None:
    def with_nan(kit: Kit, row: int) -> Any:
        nan = np.zeros((4, 4), np.float32)
        nan[row] = np.nan
        return mlp(kit, after=lambda y: y + kit.tensor(nan))

    with pytest.raises(padiff.UnusableReference, match="NaN or Inf"):
        padiff.diff(with_nan(kits[0], 0), with_nan(kits[1], 3), X)


def test_permuted_integers_part(kits: Kits) -> None:
    port = mlp(kits[1], after=lambda y: y.argsort(-1, descending=True))
    report = padiff.diff(mlp(kits[0], after=lambda y: y.argsort(-1)), port, X)
    found = source(report, Phase.FORWARD, "")
    assert found.between == ("fc2", "end")


def test_permuted_indices_inside_part(kits: Kits) -> None:
    def build(kit: Kit, shift: int) -> Any:
        def forward(self: Any, ids: Any) -> Any:
            return self.head(self.words((ids + shift) % 11))

        return network(kit, forward, words=kit.nn.Embedding(11, 8), head=kit.linear(8, 3))

    ids = np.random.default_rng(0).integers(0, 11, (2, 5))
    report = padiff.diff(build(kits[0], 0), build(kits[1], 1), {"ids": ids})
    found = source(report, Phase.FORWARD, "")
    assert found.between == ("start", "words")


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_two_models_of_one_class_are_two(framework: str) -> None:
    one = kit(framework)

    def forward(self: Any, x: Any) -> Any:
        return self.fc2(self.fc1(x) * self.factor)

    def build(factor: float) -> Any:
        return network(one, forward, factor=factor, fc1=one.linear(8, 8), fc2=one.linear(8, 4))

    reference, candidate = build(1.0), build(1.01)
    twins = type("Network", (one.module,), {"forward": forward, "construct": forward})
    reference.__class__ = candidate.__class__ = twins
    report = padiff.diff(reference, candidate, X)
    found = source(report, Phase.FORWARD, "")
    assert found.between == ("fc1", "fc2")
    assert report.output.max_abs > 0
    assert_clean(padiff.diff(reference, build(1.0), X))


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_model_is_aligned_with_itself(framework: str) -> None:
    model = mlp(kit(framework))
    report = padiff.diff(model, model, X)
    assert_clean(report)
    assert report.output.max_abs == 0


def test_every_step_is_read(kits: Kits) -> None:
    models = mlp(kits[0]), mlp(kits[1])
    # Momentum makes no difference to the first step.
    optimizers = kits[0].sgd(models[0]), kits[1].sgd(models[1], momentum=0.9)
    report = padiff.diff(*models, X, optimizers=optimizers, steps=3)
    assert not report.aligned
    assert {found.phase for found in report.sources} == {Phase.UPDATE}, told(report)
    assert min(found.step for found in report.sources) == 1, told(report)
    assert max(found.step for found in report.sources) == 2, told(report)
    assert all("momentum: 0.0" in found.cause and "0.9" in found.cause for found in report.sources)


# Alarms that are wrong --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("width", [16, 1024])
def test_aligned_float32_mlps_raise_no_alarm(kits: Kits, width: int, seed: int) -> None:
    report = padiff.diff(mlp(kits[0], hidden=width), mlp(kits[1], hidden=width), (array(64, 8, seed=seed),))
    assert_clean(report)
    assert report.output.rel_l2 < 1e-5


def test_dropout_in_training_raises_no_alarm(kits: Kits) -> None:
    def build(kit: Kit, p: float = 0.5) -> Any:
        def forward(self: Any, x: Any) -> Any:
            return self.fc2(self.drop(self.fc1(x)))

        model = network(kit, forward, fc1=kit.linear(8, 64), drop=kit.dropout(p), fc2=kit.linear(64, 4))
        kit.train(model)  # MindSpore's models begin in evaluation mode
        return model

    report = padiff.diff(build(kits[0]), build(kits[1]), X)
    assert_clean(report)
    assert report.counts["stochastic"] == 1, report.counts
    found = padiff.diff(build(kits[0]), build(kits[1], 0.1), X)
    assert "p: 0.5 in the reference, 0.1 in the candidate" in source(found, Phase.FORWARD, "drop").cause


def test_batch_norm_in_evaluation_with_trained_statistics_raises_no_alarm(kits: Kits) -> None:
    reference, port = batch_norm_net(kits[0]), batch_norm_net(kits[1])
    for seed in range(5):
        reference(kits[0].tensor(array(32, 8, seed=seed) * 4 + 2))
    kits[0].eval(reference)
    kits[1].eval(port)
    assert_clean(padiff.diff(reference, port, X))


def test_a_model_used_before_raises_no_alarm(kits: Kits) -> None:
    models = mlp(kits[0]), mlp(kits[1])
    for one, model, seed in zip(kits, models, (7, 8), strict=True):
        for _ in range(2):
            one.backward(model, one.tensor(array(4, 8, seed=seed)), lambda y: y.sum())
    for _ in range(2):
        assert_clean(padiff.diff(*models, X))


# Places that are wrong --------------------------------------------------------------------------------------


def _chain(kit: Kit, style: str, factor: float = 1.0) -> Any:
    """Return fc1, relu, fc2, relu, fc3 in a style; ``factor`` is a bug in the second layer."""
    layer = _scaled(kit, factor)
    ends = kit.linear(8, 8), kit.linear(8, 3)
    nn = kit.nn
    if style == "functional":
        relu = kit.functional.relu

        def forward(self: Any, x: Any) -> Any:
            return self.fc3(relu(self.fc2(relu(self.fc1(x)))))

        return network(kit, forward, fc1=ends[0], fc2=layer, fc3=ends[1])
    if style == "sequential":
        body = kit.sequential(ends[0], nn.ReLU(), kit.sequential(layer, nn.ReLU()))
        return network(kit, lambda self, x: self.fc3(self.body(x)), body=body, fc3=ends[1])

    def forward(self: Any, x: Any) -> Any:
        x = self.act(self.fc1(x))
        if style == "identity":
            x = self.idle(x)
        return self.fc3(self.act(self.fc2(x)))

    extra = {"idle": nn.Identity()} if style == "identity" else {}
    return network(kit, forward, fc1=ends[0], act=nn.ReLU(), fc2=layer, fc3=ends[1], **extra)


def _scaled(kit: Kit, factor: float) -> Any:
    return network(kit, lambda self, x: self.fc(x) * factor, name="Scaled", fc=kit.linear(8, 8))


@pytest.mark.parametrize("reversed_", [False, True], ids=["candidate", "reference"])
@pytest.mark.parametrize("style", ["functional", "sequential", "identity"])
def test_a_place_is_found_behind_another_style(kits: Kits, style: str, reversed_: bool) -> None:
    styles = ("plain", style)[:: -1 if reversed_ else 1]
    assert_clean(padiff.diff(_chain(kits[0], styles[0]), _chain(kits[1], styles[1]), X))
    report = padiff.diff(_chain(kits[0], styles[0]), _chain(kits[1], styles[1], 1.5), X)
    path = {"functional": "fc2", "identity": "fc2", "sequential": "body.2.0", "plain": "fc2"}
    found = source(report, Phase.FORWARD, path[styles[1]])
    assert found.reference.path == path[styles[0]]
    assert found.candidate.location.startswith(f"{__file__}:")


@pytest.mark.parametrize("where", [0, 1, 2], ids=["first", "middle", "last"])
def test_a_fault_in_a_module_of_the_users_own_is_named_there(kits: Kits, where: int) -> None:
    def forward(self: Any, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x

    def build(kit: Kit, factor: float) -> Any:
        layers = [_scaled(kit, factor if index == where else 1.0) for index in range(3)]
        return network(kit, forward, layers=kit.modules(layers))

    report = padiff.diff(build(kits[0], 1.0), build(kits[1], 1.5), X)
    found = source(report, Phase.FORWARD, f"layers.{where}")
    assert found.between == ("fc", "end")
    assert found.candidate.location == f"{__file__}:{_scaled.__code__.co_firstlineno + 1}"


@pytest.mark.parametrize("where", [0, 1, 2])
def test_a_fault_in_a_wrapper_that_only_the_candidate_has_is_named_there(kits: Kits, where: int) -> None:
    def forward(self: Any, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x

    def build(kit: Kit, factor: float | None) -> Any:
        layers = [kit.linear(8, 8) for _ in range(3)]
        if factor is not None:
            layers[where] = _scaled(kit, factor)
        return network(kit, forward, layers=kit.modules(layers))

    assert_clean(padiff.diff(build(kits[0], None), build(kits[1], 1.0), X))
    report = padiff.diff(build(kits[0], None), build(kits[1], 1.5), X)
    found = source(report, Phase.FORWARD, f"layers.{where}")
    line = _scaled.__code__.co_firstlineno + 1
    assert found.candidate.location == f"{__file__}:{line}"


def _attention(kit: Kit, *, scale: float = 1.0) -> Any:
    def forward(self: Any, x: Any) -> Any:
        y = self.fc(x)
        y = kit.attend(self.attention, y)
        return self.head(self.norm(x + y * scale))

    layers = {"fc": kit.linear(8, 8), "attention": kit.attention(8, 2), "norm": kit.layer_norm(8)}
    return network(kit, forward, **layers, head=kit.linear(8, 3))


def test_multi_head_attention_does_not_stop_localisation(kits: Kits) -> None:
    x = (array(2, 5, 8),)
    assert_clean(padiff.diff(_attention(kits[0]), _attention(kits[1]), x))
    found = source(padiff.diff(_attention(kits[0]), _attention(kits[1], scale=1.01), x), Phase.FORWARD, "")
    assert found.between == ("attention", "norm")


def test_a_fault_behind_multi_head_attention_is_named(kits: Kits) -> None:
    x = (array(2, 5, 8),)
    port = _attention(kits[1])
    port.norm = kits[1].layer_norm(8, 1e-3)
    found = source(padiff.diff(_attention(kits[0]), port, x), Phase.FORWARD, "norm")
    assert "eps: 1e-05 in the reference, 0.001 in the candidate" in found.cause


def test_multi_head_attention_with_another_head_count_is_named(kits: Kits) -> None:
    port = _attention(kits[1])
    port.attention.num_heads = 4
    port.attention.head_dim = 2
    report = padiff.diff(_attention(kits[0]), port, (array(2, 5, 8),))
    found = source(report, Phase.FORWARD, "attention")
    assert "heads: 2 in the reference, 4 in the candidate" in found.cause


def _deep(kit: Kit, twist: Any = None, at: int = 1) -> Any:
    """Return four linear layers with relu; ``twist`` is the model's own code on the ``at``-th result."""

    def forward(self: Any, x: Any) -> Any:
        for index, layer in enumerate(self.layers):
            x = layer(x)
            if twist is not None and index == at:
                x = twist(x)
            x = self.act(x)
        return x

    layers = kit.modules(kit.linear(8, 8) for _ in range(4))
    return network(kit, forward, layers=layers, act=kit.softplus())


def test_a_gradient_bug_is_named_at_its_true_place(kits: Kits) -> None:
    def twist(x: Any) -> Any:
        y = x * 1.0
        y.register_hook(lambda gradient: gradient * 2)
        return y

    report = padiff.diff(_deep(kits[0]), _deep(kits[1], twist), X)
    found = source(report, Phase.BACKWARD, "")
    assert len(report.sources) == 1, told(report)
    assert found.between == ("layers.1", "act"), told(report)


def test_a_hook_on_the_output_is_not_blamed_on_a_loss_that_nobody_gave(kits: Kits) -> None:
    def after(y: Any) -> Any:
        y = y * 1.0
        y.register_hook(lambda gradient: gradient * 2)
        return y

    report = padiff.diff(mlp(kits[0]), mlp(kits[1], after=after), X)
    source(report, Phase.BACKWARD, "")
    assert {found.phase for found in report.sources} == {Phase.BACKWARD}, told(report)


def test_a_detached_branch_is_named_at_its_true_place(kits: Kits) -> None:
    def build(kit: Kit, detached: bool) -> Any:
        def block(cut: bool) -> Any:
            def forward(self: Any, x: Any) -> Any:
                return (kit.detach(x) if cut else x) + self.fc(x)

            return network(kit, forward, name="Block", fc=kit.linear(8, 8))

        def forward(self: Any, x: Any) -> Any:
            for layer in self.blocks:
                x = layer(x)
            return self.head(x)

        layers = kit.modules(block(detached and index == 1) for index in range(3))
        return network(kit, forward, blocks=layers, head=kit.linear(8, 3))

    report = padiff.diff(build(kits[0], False), build(kits[1], True), X)
    found = source(report, Phase.BACKWARD, "blocks.1")
    assert len(report.sources) == 1, told(report)
    assert found.reference.path == "blocks.1"


def test_same_shaped_layers_defined_in_another_order_are_not_crossed(kits: Kits) -> None:
    def build(kit: Kit, order: tuple[str, ...]) -> Any:
        def forward(self: Any, x: Any) -> Any:
            return self.proj(self.value(x) * kit.functional.sigmoid(self.query(x) - self.key(x)))

        return network(kit, forward, **{name: kit.linear(8, 8) for name in order})

    names = ("query", "key", "value", "proj")
    reference, port = build(kits[0], names), build(kits[1], names[::-1])
    assert_clean(padiff.diff(reference, port, X))
    for name in names:
        ours, theirs = (kit.linear_weight(getattr(m, name)) for kit, m in zip(kits, (reference, port), strict=True))
        assert np.array_equal(ours, theirs), name


# Crashes ----------------------------------------------------------------------------------------------------


def test_bfloat16_models_are_compared() -> None:
    one = kit("torch")

    def build(eps: float = 1e-5) -> Any:
        norm = one.layer_norm(8, eps)
        return blocks(one, depth=2, norm={1: norm}).to(one.native.bfloat16)

    x = (array(4, 8).astype(ml_dtypes.bfloat16),)
    report = padiff.diff(build(), build(), x)
    assert_clean(report)
    found = source(padiff.diff(build(), build(0.5), x), Phase.FORWARD, "blocks.1.norm")
    assert "eps: 1e-05 in the reference, 0.5 in the candidate" in found.cause


def test_bfloat16_inputs_and_outputs_cross_frameworks(kits: Kits) -> None:
    def build(kit: Kit) -> Any:
        # Paddle and MindSpore have no bfloat16 kernels on the CPU but for casts.
        def forward(self: Any, x: Any) -> Any:
            return kit.cast(self.fc(kit.cast(x, "float32")), "bfloat16")

        return network(kit, forward, fc=kit.linear(8, 4))

    x = array(4, 8).astype(ml_dtypes.bfloat16)
    assert_clean(padiff.diff(build(kits[0]), build(kits[1]), (x,)))


@dataclass
class Output:
    logits: Any
    hidden: Any = None


def test_dataclass_outputs_are_compared(kits: Kits) -> None:
    def build(kit: Kit, factor: float = 1.0) -> Any:
        def forward(self: Any, x: Any) -> Any:
            hidden = self.fc1(x)
            return Output(self.fc2(hidden), hidden * factor)

        return network(kit, forward, fc1=kit.linear(8, 8), fc2=kit.linear(8, 4))

    assert_clean(padiff.diff(build(kits[0]), build(kits[1]), X))
    found = source(padiff.diff(build(kits[0]), build(kits[1], 1.1), X), Phase.FORWARD, "")
    assert "hidden" in found.what


def test_a_sublayer_that_returns_none_is_no_trouble(kits: Kits) -> None:
    def build(kit: Kit, factor: float = 1.0) -> Any:
        silent = network(kit, lambda self, x: None, name="Silent")

        def forward(self: Any, x: Any) -> Any:
            assert self.silent(x) is None
            return self.fc2(self.fc1(x) * factor)

        return network(kit, forward, fc1=kit.linear(8, 8), silent=silent, fc2=kit.linear(8, 4))

    assert_clean(padiff.diff(build(kits[0]), build(kits[1]), X))
    found = source(padiff.diff(build(kits[0]), build(kits[1], 1.1), X), Phase.FORWARD, "")
    assert found.between == ("fc1", "fc2")


def _language(kit: Kit, *, tied: bool = True, factor: float = 1.0) -> Any:
    def logits(self: Any, x: Any) -> Any:
        return (self.norm(x) * factor) @ self.weight.t()

    head = network(kit, logits, name="Head", norm=kit.layer_norm(8), weight=kit.parameter(array(11, 8)))
    model = network(kit, lambda self, ids: self.head(self.words(ids)), words=kit.nn.Embedding(11, 8), head=head)
    if tied:
        kit.tie(model.head, model.words)
    return model


def test_tied_weights_are_compared(kits: Kits) -> None:
    ids = {"ids": np.random.default_rng(0).integers(0, 11, (2, 5))}
    assert_clean(padiff.diff(_language(kits[0]), _language(kits[1]), ids))
    source(padiff.diff(_language(kits[0]), _language(kits[1], factor=1.1), ids), Phase.FORWARD, "head")


def test_weights_tied_on_one_side_only_are_named(kits: Kits) -> None:
    ids = {"ids": np.random.default_rng(0).integers(0, 11, (2, 5))}
    report = padiff.diff(_language(kits[0]), _language(kits[1], tied=False), ids)
    found = source(report, Phase.PARAMETER, "head")
    assert "tied in the reference, not tied in the candidate" in found.cause
    assert len(report.sources) == 1, report  # the gradients of either part follow


@pytest.mark.parametrize("frameworks", [(a, b) for a in FRAMEWORKS for b in FRAMEWORKS], ids="-".join)
def test_either_framework_is_the_reference(frameworks: tuple[str, str]) -> None:
    one, other = map(kit, frameworks)
    assert_clean(padiff.diff(mlp(one), mlp(other), X))
    found = source(padiff.diff(mlp(one), mlp(other, after=lambda y: y * 2), X), Phase.FORWARD, "")
    assert found.between == ("fc2", "end")


def test_layers_with_several_outputs_are_compared(kits: Kits) -> None:
    def build(kit: Kit, factor: float = 1.0) -> Any:
        def split(self: Any, x: Any) -> Any:
            y = self.fc(x)
            return y[:, :4], {"rest": y[:, 4:] * factor}

        def forward(self: Any, x: Any) -> Any:
            first, more = self.split(x)
            return self.head(kit.concat([more["rest"], first], 1)), first

        layer = network(kit, split, name="Split", fc=kit.linear(8, 8))
        return network(kit, forward, split=layer, head=kit.linear(8, 3))

    assert_clean(padiff.diff(build(kits[0]), build(kits[1]), X))
    found = source(padiff.diff(build(kits[0]), build(kits[1], 1.1), X), Phase.FORWARD, "split")
    assert "rest" in found.what


def test_a_recurrent_layer_with_states_is_compared(kits: Kits) -> None:
    def build(kit: Kit, factor: float = 1.0) -> Any:
        lstm = kit.lstm(8, 6)

        def forward(self: Any, x: Any) -> Any:
            y, (h, c) = self.lstm(x)
            return self.head(y), h, c * factor

        return network(kit, forward, lstm=lstm, head=kit.linear(6, 3))

    x = (array(2, 5, 8),)
    assert_clean(padiff.diff(build(kits[0]), build(kits[1]), x))
    found = source(padiff.diff(build(kits[0]), build(kits[1], 1.1), x), Phase.FORWARD, "")
    assert "2" in found.what


# Side effects -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["atol", "rtol", "compare_mode", "single_step", "diff_phase", "options"])
def test_an_unknown_keyword_is_an_error(kits: Kits, name: str) -> None:
    with pytest.raises(TypeError, match=name):
        padiff.diff(mlp(kits[0]), mlp(kits[1]), X, **{name: 1})


def test_a_tolerance_does_not_leak_into_the_next_call(kits: Kits) -> None:
    reference, port = mlp(kits[0]), mlp(kits[1], after=lambda y: y * 1.01)
    loose, tight = {"atol": 1.0, "rtol": 1.0}, {"atol": 0.0, "rtol": 0.0, "compare_mode": "strict"}
    assert not padiff.diff(reference, port, X).aligned
    assert padiff.diff(reference, port, X, tolerance=loose).aligned
    assert not padiff.diff(reference, port, X).aligned
    # Some processors give two frameworks' products the same bits.
    clean = mlp(kits[1], after=lambda y: (y + 4.0) - 4.0)
    assert not padiff.diff(reference, clean, (array(64, 8),), tolerance=tight).aligned
    assert_clean(padiff.diff(reference, clean, (array(64, 8),)))
    assert (loose, tight["compare_mode"]) == ({"atol": 1.0, "rtol": 1.0}, "strict")


@pytest.mark.usefixtures("young_heap")
def test_memory_does_not_grow_from_call_to_call(kits: Kits) -> None:
    models = mlp(kits[0], hidden=2048), mlp(kits[1], hidden=2048)
    x = (array(256, 8),)  # each hidden value and each of its gradients holds 2 MiB
    process = psutil.Process()
    sizes = []
    for _ in range(6):
        padiff.diff(*models, x, loss=lambda y: (y * y).mean())
        gc.collect()
        sizes.append(process.memory_info().rss)
    assert min(sizes[-2:]) - max(sizes[:2]) < 16 * 2**20, sizes
