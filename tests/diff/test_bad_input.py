"""Give padiff what it cannot compare: each time one clear sentence with a hint."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.report import Phase, Verdict

from .models import Kit, array, assert_clean, kit, mlp, network, paths, source, told

Kits = tuple[Kit, Kit]
X = (array(4, 8),)


def _said(error: type[Exception], *args: Any, **kwargs: Any) -> str:
    """Return the message of the error that a diff raises: it must hold a hint, and be no wall of text."""
    with pytest.raises(error) as caught:
        padiff.diff(*args, **kwargs)
    text = str(caught.value)
    assert "\nHint: " in text, text
    assert len(text) < 1500, text
    return text


# Inputs -----------------------------------------------------------------------------------------------------


def _two_inputs(one: Kit, second: str = "mask") -> Any:
    scope: dict[str, Any] = {}
    exec(f"def forward(self, x, {second}, scale=2.0): return self.fc(x * {second}) * scale", scope)
    return network(one, scope["forward"], name="TwoInputs", fc=one.linear(8, 4))


def test_an_unknown_argument_name(kits: Kits) -> None:
    said = _said(padiff.InputError, _two_inputs(kits[0]), _two_inputs(kits[1]), {"x": X[0], "masque": X[0]})
    assert "TwoInputs.forward(x, mask, scale=2.0)" in said
    assert "'masque'" in said
    assert "candidate_inputs" in said


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({"x": X[0]}, "'mask'"),
        ((X[0],), "'mask'"),
        ((), "'x'"),
        ({}, "'x'"),
        ((X[0],) * 5, "too many positional arguments"),
    ],
    ids=["missing keyword", "missing position", "empty tuple", "empty dict", "too many"],
)
def test_inputs_that_do_not_fit_the_signature(kits: Kits, inputs: Any, words: str) -> None:
    said = _said(padiff.InputError, _two_inputs(kits[0]), _two_inputs(kits[1]), inputs)
    assert "the inputs do not fit TwoInputs.forward(x, mask, scale=2.0)" in said
    assert words in said
    assert "given were" in said


def test_inputs_that_fit_the_reference_only(kits: Kits) -> None:
    models = _two_inputs(kits[0]), _two_inputs(kits[1], "attention_mask")
    given = {"x": X[0], "mask": X[0]}
    said = _said(padiff.InputError, *models, given)
    assert "forward(x, attention_mask" in said
    assert "candidate_inputs=" in said
    assert_clean(padiff.diff(*models, given, candidate_inputs={"x": X[0], "attention_mask": X[0]}))


@pytest.mark.parametrize("inputs", [None, 3, "x", {1, 2}, object(), np.float32], ids=lambda value: type(value).__name__)
def test_inputs_of_another_type(kits: Kits, inputs: Any) -> None:
    said = _said(padiff.InputError, mlp(kits[0]), mlp(kits[1]), inputs)
    assert f"inputs is {type(inputs).__qualname__}" in said
    assert "a dict (keyword arguments) or a tuple (positional)" in said
    assert "Hint: inputs={'x': array}" in said


def test_inputs_with_a_key_that_is_no_name(kits: Kits) -> None:
    said = _said(padiff.InputError, mlp(kits[0]), mlp(kits[1]), {0: X[0]})
    assert "the key 0 of type int" in said


def test_a_list_a_bare_array_and_foreign_tensors_are_inputs_too(kits: Kits) -> None:
    models = mlp(kits[0]), mlp(kits[1])
    for given in ([X[0]], X[0], kits[0].tensor(X[0]), (kits[1].tensor(X[0]),), {"x": kits[1].tensor(X[0])}):
        assert_clean(padiff.diff(*models, given))


def test_float64_inputs_are_cast_and_that_is_said(kits: Kits) -> None:
    report = padiff.diff(mlp(kits[0]), mlp(kits[1]), (X[0].astype(np.float64),))
    assert_clean(report)
    assert any("float64 inputs were cast" in note.text for note in report.notes)


def test_an_array_of_another_shape(kits: Kits) -> None:
    said = _said(padiff.ForwardError, mlp(kits[0]), mlp(kits[1]), (array(4, 7),))
    assert f"the {kits[0].name} model Mlp raised" in said
    assert "in module 'fc1'" in said
    assert "float32[4, 7]" in said


def test_a_text_as_an_argument_reaches_the_model(kits: Kits) -> None:
    def forward(self: Any, x: Any, mode: str) -> Any:
        return self.fc(x) * {"twice": 2.0}[mode]

    models = tuple(network(one, forward, fc=one.linear(8, 4)) for one in kits)
    assert_clean(padiff.diff(*models, {"x": X[0], "mode": "twice"}))
    said = _said(padiff.ForwardError, *models, {"x": X[0], "mode": "thrice"})
    assert "KeyError" in said
    assert "'thrice'" in said


# Parameters -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", [0, 1], ids=["reference", "candidate"])
def test_a_layer_that_only_one_side_has_is_named(kits: Kits, side: int) -> None:
    def forward(self: Any, x: Any) -> Any:
        return self.fc2(self.fc1(x))

    def longer(self: Any, x: Any) -> Any:
        return self.fc2(self.extra(self.fc1(x)))

    def build(one: Kit, extra: bool) -> Any:
        layers = {"extra": one.linear(16, 16)} if extra else {}
        return network(one, longer if extra else forward, fc1=one.linear(8, 16), **layers, fc2=one.linear(16, 4))

    report = padiff.diff(build(kits[0], side == 0), build(kits[1], side == 1), X)
    assert not report.aligned
    transfer = report.transfer
    unmatched = (transfer.unmatched_reference, transfer.unmatched_candidate)
    assert sorted(unmatched[side]) == ["extra.bias", "extra.weight"]
    assert unmatched[1 - side] == ()
    missing = [f for f in report.sources if f.phase is Phase.PARAMETER]
    assert {f.verdict for f in missing} == {Verdict.UNMATCHED}
    places = [(f.reference, f.candidate) for f in missing]
    assert {place[side].path for place in places} == {"extra"}
    # The other side has no such place, or at most the place around it.
    assert {place[1 - side].path for place in places} <= {None, ""}
    other = ("the candidate", "the reference")[side]
    assert all(f"{other} has no counterpart" in " ".join(found.evidence) for found in missing)


def test_a_parameter_of_another_shape_is_named_with_both_shapes(kits: Kits) -> None:
    def forward(self: Any, x: Any) -> Any:
        return self.fc1(x), self.fc2(x)

    models = [
        network(one, forward, fc1=one.linear(8, 16), fc2=one.linear(8, width))
        for one, width in zip(kits, (4, 5), strict=True)
    ]
    report = padiff.diff(*models, X)
    assert not report.aligned
    said = " ".join(" ".join(f.evidence) for f in report.sources if f.phase is Phase.PARAMETER)
    assert "fc2.weight" in said
    shapes = {"torch": ("[4, 8]", "[5, 8]"), "paddle": ("[8, 4]", "[8, 5]"), "mindspore": ("[4, 8]", "[5, 8]")}
    assert shapes[kits[0].name][0] in said
    assert shapes[kits[1].name][1] in said
    assert "fc1" not in paths(report), told(report)


def test_models_that_share_nothing_are_not_aligned(kits: Kits) -> None:
    def build(one: Kit) -> Any:
        return network(one, lambda self, x: self.norm(x), norm=one.layer_norm(8))

    report = padiff.diff(mlp(kits[0], out=8), build(kits[1]), X)
    assert not report.aligned
    assert len(report.transfer.unmatched_reference) == 4
    names = ["beta", "gamma"] if kits[1].name == "mindspore" else ["bias", "weight"]
    assert sorted(report.transfer.unmatched_candidate) == [f"norm.{name}" for name in names]


# Models -----------------------------------------------------------------------------------------------------


class Estimator:
    """Stand for a model of no framework."""

    def __call__(self, x: Any) -> Any:
        return x


@pytest.mark.parametrize("side", [0, 1], ids=["reference", "candidate"])
@pytest.mark.parametrize(
    ("model", "words"),
    [
        (Estimator(), "no adapter knows a model of class .*Estimator"),
        (Estimator, "got the class .*Estimator where a model, an instance, was expected"),
        (None, "got None where a model was expected"),
        (test_models_that_share_nothing_are_not_aligned, "got the function test_models_that"),
        ([Estimator()], "no adapter knows a model of class builtins.list"),
        (np.ones(3), "no adapter knows a model of class numpy.ndarray"),
    ],
    ids=["object", "class", "None", "function", "list", "array"],
)
def test_a_model_that_no_adapter_knows(model: Any, words: str, side: int) -> None:
    pair = [mlp(kit("torch")), mlp(kit("torch"))]
    pair[side] = model
    with pytest.raises(padiff.UnknownModel, match=words) as caught:
        padiff.diff(*pair, X)
    assert "Adapters installed: " in str(caught.value)
    assert "torch (padiff-torch)" in str(caught.value)
    assert "\nHint: " in str(caught.value)


def test_a_framework_class_instead_of_a_model_says_call_it() -> None:
    said = _said(padiff.UnknownModel, kit("torch").nn.ReLU, mlp(kit("torch")), X)
    assert "Hint: call it" in said


def test_a_model_of_a_framework_whose_adapter_is_not_installed() -> None:
    base = type("Layer", (), {"__module__": "keras.src.layers.layer"})
    mine = type("MyLayer", (base,), {"__module__": "my_models"})
    said = _said(padiff.UnknownModel, mine(), mlp(kit("torch")), X)
    assert "my_models.MyLayer" in said
    assert "come from: my_models, keras" in said
    assert "padiff has no adapter of its own for keras" in said


def test_a_missing_framework() -> None:
    code = """
        import sys
        sys.modules["paddle"] = None  # what an import of a package that is not there meets
        import padiff
        layer = type("Layer", (), {"__module__": "paddle.nn.layer.layers"})
        try:
            padiff.diff(layer(), layer(), ())
        except padiff.MissingFramework as error:
            print(error)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=120, check=True
    )
    assert "needs paddle, which is not installed" in done.stdout
    assert "Hint: pip install paddlepaddle" in done.stdout


@pytest.mark.parametrize("side", [0, 1], ids=["reference", "candidate"])
@pytest.mark.parametrize("whole", [True, False], ids=["model", "submodule"])
@pytest.mark.parametrize("way", ["torch.compile", "in place", "scripted"])
def test_a_compiled_torch_model(way: str, whole: bool, side: int) -> None:
    import torch

    one, model = kit("torch"), None
    model = one.sequential(one.linear(8, 4), one.nn.ReLU())
    target = model if whole else model[0]
    if way == "torch.compile":
        target = torch.compile(target)
    elif way == "scripted":
        target = torch.jit.script(target)
    else:
        target.compile()
    if whole:
        model = target
    else:
        model[0] = target
    pair = [mlp(kit("paddle")), mlp(kit("paddle"))]
    pair[side] = model
    said = _said(padiff.UnwatchableModel, *pair, X)
    assert "hooks on it would be silently ignored" in said
    assert said.startswith(f"the {('reference', 'candidate')[side]}: ")
    assert ("TorchScript" if way == "scripted" else "compile") in said
    assert whole or "the submodule '0'" in said


@pytest.mark.parametrize("side", [0, 1], ids=["reference", "candidate"])
@pytest.mark.parametrize("whole", [True, False], ids=["model", "submodule"])
def test_a_paddle_model_under_full_graph_to_static(whole: bool, side: int) -> None:
    import paddle

    model = mlp(kit("paddle"))
    if whole:
        model = paddle.jit.to_static(model, full_graph=True)
    else:
        model.fc2 = paddle.jit.to_static(model.fc2, full_graph=True)
    pair = [mlp(kit("torch")), mlp(kit("torch"))]
    pair[side] = model
    said = _said(padiff.UnwatchableModel, *pair, X)
    assert "to_static(full_graph=True)" in said
    assert said.startswith(f"the {('reference', 'candidate')[side]}: ")
    assert "full_graph=False" in said
    assert whole or "'fc2'" in said


def test_paddle_in_static_mode() -> None:
    import paddle

    models = mlp(kit("torch")), mlp(kit("paddle"))
    paddle.enable_static()
    try:
        said = _said(padiff.UnwatchableModel, *models, X)
    finally:
        paddle.disable_static()
    assert "static mode" in said
    assert "paddle.disable_static()" in said


@pytest.mark.parametrize("side", [0, 1], ids=["reference", "candidate"])
def test_a_model_that_lies_partly_on_the_meta_device(side: int) -> None:
    import torch

    model = mlp(kit("torch"))
    model.fc2.weight = torch.nn.Parameter(torch.empty(4, 16, device="meta"))
    pair = [mlp(kit("paddle")), mlp(kit("paddle"))]
    pair[side] = model
    said = _said(padiff.InputError, *pair, X)
    assert f"in the {('reference', 'candidate')[side]}, 'fc2.weight' is on the meta device and has no values" in said
    assert "to_empty" in said


def test_a_model_without_values() -> None:
    import torch

    with torch.device("meta"):
        model = mlp(kit("torch"))
    said = _said(padiff.PadiffError, model, mlp(kit("paddle")), X)
    assert "meta" in said


# Outputs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [None, 3.5, "text", (), {"loss": None}], ids=repr)
def test_a_reference_that_returns_no_tensor(kits: Kits, given: Any) -> None:
    models = mlp(kits[0], after=lambda y: given), mlp(kits[1])
    said = _said(padiff.UnusableReference, *models, X)
    assert "the reference returned no tensor" in said
    assert "tuples, lists, dicts, named tuples and dataclasses" in said


@pytest.mark.parametrize("given", [None, 3.5, "text", (), {"loss": None}], ids=repr)
def test_a_candidate_that_returns_no_tensor(kits: Kits, given: Any) -> None:
    said = _said(padiff.InputError, mlp(kits[0]), mlp(kits[1], after=lambda y: given), X)
    assert "the candidate Mlp returned no tensor" in said


class _Spoiled:
    """Build a model with a value that is not finite in the middle of it."""

    def __init__(self, value: float) -> None:
        self.value = value

    def __call__(self, one: Kit) -> Any:
        def forward(self: Any, x: Any) -> Any:
            y = self.fc(x)
            return y * 0 + value

        value = self.value
        spoiled = network(one, forward, name="Spoiled", fc=one.linear(8, 8))
        layers = one.modules([one.linear(8, 8), spoiled, one.linear(8, 8)])

        def chain(self: Any, x: Any) -> Any:
            for layer in self.layers:
                x = layer(x)
            return x

        return network(one, chain, layers=layers)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_reference_that_is_not_finite_names_where_it_arises(kits: Kits, value: float) -> None:
    said = _said(padiff.UnusableReference, _Spoiled(value)(kits[0]), mlp(kits[1], out=8), X)
    assert "the reference computes NaN or Inf" in said
    assert "'layers.1' (" in said
    assert "Spoiled" in said
    assert f"{__file__}:" in said


def test_nan_in_a_container_of_the_framework_names_no_line(kits: Kits) -> None:
    """It named the line None."""
    models = [one.sequential(one.linear(8, 8)) for one in kits]
    said = _said(padiff.UnusableReference, *models, np.full((4, 8), np.nan, np.float32))
    assert "first in the output of '0' (" in said
    assert "None" not in said


def test_nan_in_a_parameter_of_the_reference_names_its_module(kits: Kits) -> None:
    model = mlp(kits[0])
    values = np.zeros(tuple(model.fc2.weight.shape), np.float32)
    values[0, 0] = np.nan
    kits[0].assign(model.fc2.weight, values)
    said = _said(padiff.UnusableReference, model, mlp(kits[1]), X)
    assert "'fc2' (" in said


def test_nan_in_the_inputs_is_said_to_be_there() -> None:
    x = array(4, 8)
    x[2, 3] = np.nan
    said = _said(padiff.UnusableReference, mlp(kit("torch")), mlp(kit("paddle")), {"x": x})
    assert "input 'x'" in said


def test_an_infinite_mask_among_the_inputs_is_no_trouble(kits: Kits) -> None:
    def build(one: Kit) -> Any:
        def forward(self: Any, x: Any, mask: Any) -> Any:
            return self.fc(one.softmax(x + mask))

        return network(one, forward, fc=one.linear(8, 4))

    mask = np.zeros((4, 8), np.float32)
    mask[np.triu_indices(4, 1, 8)] = -np.inf
    assert_clean(padiff.diff(build(kits[0]), build(kits[1]), {"x": X[0], "mask": mask}))


@pytest.mark.parametrize("value", [-float("inf"), float("nan")], ids=["masked", "broken"])
def test_an_output_that_is_masked_on_purpose_is_told_what_to_return(kits: Kits, value: float) -> None:
    hidden = np.zeros((4, 4), np.float32)
    hidden[:, 2] = value
    models = [mlp(one, after=lambda y, one=one: y + one.tensor(hidden)) for one in kits]
    said = _said(padiff.UnusableReference, *models, X)
    assert ("let both models return what it masks" in said) is (value == -float("inf"))


def test_a_loss_that_is_not_finite(kits: Kits) -> None:
    said = _said(padiff.UnusableReference, mlp(kits[0]), mlp(kits[1]), X, loss=lambda y: (y * y).sum() * float("inf"))
    assert "in its loss" in said


def test_an_infinite_mask_inside_is_no_trouble(kits: Kits) -> None:
    def build(one: Kit) -> Any:
        def attend(self: Any, scores: Any, mask: Any) -> Any:
            return one.softmax(scores + mask)

        def forward(self: Any, x: Any) -> Any:
            mask = np.zeros((4, 4), np.float32)
            mask[np.triu_indices(4, 1)] = -np.inf
            return self.fc(self.attend(x @ x.t(), one.tensor(mask)) @ x)

        attention = network(one, attend, name="Attend")
        return network(one, forward, attend=attention, fc=one.linear(8, 4))

    assert_clean(padiff.diff(build(kits[0]), build(kits[1]), X))


def test_a_candidate_that_is_not_finite_is_a_finding(kits: Kits) -> None:
    def good(self: Any, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x

    fine = network(kits[0], lambda self, x: self.fc(x) * 2, name="Spoiled", fc=kits[0].linear(8, 8))
    layers = kits[0].modules([kits[0].linear(8, 8), fine, kits[0].linear(8, 8)])
    report = padiff.diff(network(kits[0], good, layers=layers), _Spoiled(float("nan"))(kits[1]), X)
    found = source(report, Phase.FORWARD, "layers.1")
    assert found.figures is not None
    assert found.figures.not_finite == (0, X[0].size), report
    assert "NaN or Inf: none in the reference, " in str(report)


# Settings ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", ["fwd", None, "", 1, ["both"]], ids=repr)
def test_a_wrong_phase(phase: Any) -> None:
    said = _said(padiff.InputError, mlp(kit("torch")), mlp(kit("paddle")), X, phase=phase)
    assert f"phase is {phase!r}" in said
    assert "'both', 'forward', 'backward'" in said


@pytest.mark.parametrize("steps", [0, -1, 1.5, "2", None], ids=repr)
def test_a_wrong_number_of_steps(steps: Any) -> None:
    said = _said(padiff.InputError, mlp(kit("torch")), mlp(kit("paddle")), X, steps=steps)
    assert f"steps is {steps!r}; expected a whole number from 1" in said


def test_several_steps_without_optimizers() -> None:
    said = _said(padiff.InputError, mlp(kit("torch")), mlp(kit("paddle")), X, steps=2)
    assert "steps is 2" in said
    assert "optimizers=(for_the_reference, for_the_candidate)" in said


def test_several_steps_of_the_forward_pass_alone() -> None:
    pair = mlp(kit("torch")), mlp(kit("paddle"))
    optimizers = (lambda: None, lambda: None)
    said = _said(padiff.InputError, *pair, X, steps=2, optimizers=optimizers, phase="forward")
    assert "steps is 2" in said


@pytest.mark.parametrize(
    ("tolerance", "words"),
    [
        ({"tol": 1e-4}, "tol"),
        ({"atol": 1e-4, "mode": "strict"}, "mode"),
        ({"compare_mode": "max"}, "compare_mode='max'"),
        (1e-4, "0.0001"),
        ((1e-4, 1e-5), "(0.0001, 1e-05)"),
        ({"atol": -1.0}, "atol"),
        ({"rtol": "small"}, "rtol"),
        ({"atol": None}, "atol"),
        ({"atol": float("nan")}, "atol"),
    ],
    ids=str,
)
def test_a_wrong_tolerance(tolerance: Any, words: str) -> None:
    said = _said(padiff.InputError, mlp(kit("torch")), mlp(kit("paddle")), X, tolerance=tolerance)
    assert words in said
    assert "tolerance" in said
    assert "atol, rtol and compare_mode ('mean' or 'strict')" in said


@pytest.mark.parametrize("optimizers", [3, "sgd", (), (None,), (1, 2, 3), {"a": 1}], ids=repr)
def test_wrong_optimizers(optimizers: Any) -> None:
    said = _said(padiff.InputError, mlp(kit("torch")), mlp(kit("paddle")), X, optimizers=optimizers)
    assert "optimizers" in said
    assert "pair" in said
    assert "optimizers=(for_the_reference, for_the_candidate)" in said


@pytest.mark.parametrize("optimizers", [(None, None), (1, 2)], ids=repr)
def test_a_pair_of_what_is_no_optimizer(optimizers: Any) -> None:
    said = _said(padiff.InputError, mlp(kit("torch")), mlp(kit("paddle")), X, optimizers=optimizers)
    assert "optimizer" in said
    assert type(optimizers[0]).__qualname__ in said


def test_one_optimizer_instead_of_a_pair(kits: Kits) -> None:
    models = mlp(kits[0]), mlp(kits[1])
    said = _said(padiff.InputError, *models, X, optimizers=kits[0].sgd(models[0]))
    assert "optimizers is " in said
    assert "pair" in said


def test_swapped_optimizers_are_told_apart(kits: Kits) -> None:
    models = mlp(kits[0]), mlp(kits[1])
    optimizers = kits[1].sgd(models[1]), kits[0].sgd(models[0])
    said = _said(padiff.InputError, *models, X, optimizers=optimizers)
    assert "optimizers=(for_the_reference, for_the_candidate)" in said


def test_an_optimizer_of_another_model_is_told(kits: Kits) -> None:
    models = mlp(kits[0]), mlp(kits[1])
    optimizers = kits[0].sgd(models[0]), kits[1].sgd(mlp(kits[1]))
    report = padiff.diff(*models, X, optimizers=optimizers)
    assert {found.phase for found in report.sources} == {Phase.UPDATE}, told(report)
    assert [str(found.cause) for found in report.sources] == [
        "the candidate's optimizer does not step what the reference's steps"
    ]


def test_optimizers_of_other_models_are_no_pass(kits: Kits) -> None:
    models = mlp(kits[0]), mlp(kits[1])
    optimizers = kits[0].sgd(mlp(kits[0])), kits[1].sgd(mlp(kits[1]))
    report = padiff.diff(*models, X, optimizers=optimizers, steps=2)
    assert not report.aligned
    assert str(report).count("neither optimizer holds parameters of its model") == 1, told(report)


def test_optimizers_that_move_nothing_are_noted(kits: Kits) -> None:
    """A warm-up begins with a rate of 0, which is right; a function may have forgotten its step."""
    said = "neither optimizer moved a parameter in any step"
    idle = lambda: None  # noqa: E731
    for optimizers, noted in (((idle, idle), True), (None, False)):
        models = mlp(kits[0]), mlp(kits[1])
        given = optimizers or (kits[0].sgd(models[0]), kits[1].sgd(models[1]))
        report = padiff.diff(*models, X, optimizers=given, steps=2)
        assert report.aligned, told(report)
        assert (said in " ".join(str(report).split())) is noted


@pytest.mark.parametrize("loss", [3, "mse", (), (len,), (1, 2), (len, len, len)], ids=repr)
def test_a_wrong_loss(loss: Any) -> None:
    said = _said(padiff.InputError, mlp(kit("torch")), mlp(kit("paddle")), X, loss=loss)
    assert "loss is neither a function nor a pair of functions" in said
    assert "loss=(for_the_reference, for_the_candidate)" in said


@pytest.mark.parametrize("side", [0, 1], ids=["reference", "candidate"])
def test_a_loss_that_returns_no_tensor(kits: Kits, side: int) -> None:
    losses = [lambda y: y.sum(), lambda y: y.sum()]
    losses[side] = lambda y: 0.5
    said = _said(padiff.InputError, mlp(kits[0]), mlp(kits[1]), X, loss=tuple(losses))
    assert f"the loss returned float, not a tensor of {kits[side].name}" in said


@pytest.mark.parametrize("side", [0, 1], ids=["reference", "candidate"])
def test_a_loss_of_several_numbers(kits: Kits, side: int) -> None:
    models, losses = (mlp(kits[0]), mlp(kits[1])), [lambda y: y.sum(), lambda y: y.sum()]
    for one, model in zip(kits, models, strict=True):
        one.eval(model)
    losses[side] = lambda y: y * y
    if kits[side].name == "torch":
        said = _said(padiff.InputError, *models, X, loss=tuple(losses))
        assert "the loss returned float32[4, 4], not one number" in said
    else:  # others add them up by themselves
        assert padiff.diff(*models, X, loss=lambda y: (y * y).sum()).aligned
        losses[1 - side] = lambda y: (y * y).sum()
        assert padiff.diff(*models, X, loss=tuple(losses)).aligned


def test_a_loss_that_sends_no_gradient_is_compared_forward_alone(kits: Kits) -> None:
    report = padiff.diff(mlp(kits[0]), mlp(kits[1]), X, loss=lambda y: y.detach().sum() if hasattr(y, "detach") else y)
    assert str(report).startswith("aligned, forward only"), told(report)
    assert report.forward_only == "no gradient comes to anything, on either side"


def test_a_loss_for_one_framework_given_to_both(kits: Kits) -> None:
    def loss(y: Any) -> Any:
        return kits[0].functional.mse_loss(y, kits[0].tensor(np.zeros((4, 4), np.float32)))

    said = _said(padiff.PadiffError, mlp(kits[0]), mlp(kits[1]), X, loss=loss)
    assert "loss" in said
    assert f"{__file__}:" in said
    assert "loss=(for_the_reference, for_the_candidate)" in said


def test_a_loss_that_raises_is_named(kits: Kits) -> None:
    def loss(_: Any) -> Any:
        msg = "no such loss"
        raise ValueError(msg)

    said = _said(padiff.ForwardError, mlp(kits[0]), mlp(kits[1]), X, loss=loss)
    assert "no such loss" in said
    assert "the loss" in said.partition("\nHint")[0].replace("no such loss", "")


@pytest.mark.parametrize("mapping", [3, "fc1", ["fc1"], ("fc1", "fc1")], ids=repr)
def test_a_wrong_mapping(mapping: Any) -> None:
    said = _said(padiff.MappingError, mlp(kit("torch")), mlp(kit("paddle")), X, mapping=mapping)
    assert f"mapping is {type(mapping).__qualname__}" in said
    assert "padiff.LayerMap" in said


@pytest.mark.parametrize("seed", ["a", 1.5, None, -1], ids=repr)
def test_a_wrong_seed(seed: Any) -> None:
    said = _said(padiff.InputError, mlp(kit("torch")), mlp(kit("paddle")), X, seed=seed)
    assert f"seed is {seed!r}" in said


# A model that raises ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", [0, 1], ids=["reference", "candidate"])
def test_a_model_that_raises_says_where(kits: Kits, side: int) -> None:
    def explode(self: Any, x: Any) -> Any:
        return 1 // 0

    def build(one: Kit, broken: bool) -> Any:
        def calm(self: Any, x: Any) -> Any:
            return self.fc(x)

        middle = network(one, explode if broken else calm, name="Middle", fc=one.linear(8, 8))
        body = one.sequential(one.linear(8, 8), middle, one.linear(8, 8))

        def forward(self: Any, x: Any) -> Any:
            return self.body(x)

        return network(one, forward, name="Outer", body=body)

    with pytest.raises(padiff.ForwardError) as caught:
        padiff.diff(build(kits[0], side == 0), build(kits[1], side == 1), X)
    said = str(caught.value)
    assert f"the {kits[side].name} model Outer raised ZeroDivisionError in module 'body.1'" in said
    assert "Middle" in said
    assert "by zero" in said
    line = explode.__code__.co_firstlineno + 1
    assert f"{__file__}:{line}" in said, said
    assert "float32[4, 8]" in said
    assert "\nHint: " in said
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_root_that_raises_says_where(kits: Kits) -> None:
    def explode(y: Any) -> Any:
        return y.no_such_method()

    with pytest.raises(padiff.ForwardError) as caught:
        padiff.diff(mlp(kits[0]), mlp(kits[1], after=explode), X)
    said = str(caught.value)
    assert "AttributeError" in said
    assert f"{__file__}:{explode.__code__.co_firstlineno + 1}" in said, said
    assert "module ''" not in said


@pytest.mark.parametrize("side", [0, 1], ids=["reference", "candidate"])
def test_a_torch_model_that_is_not_built_yet(side: int) -> None:
    one = kit("torch")
    lazy = network(one, lambda self, x: self.fc(x), fc=one.nn.LazyLinear(4))
    pair = [mlp(kit("paddle")), mlp(kit("paddle"))]
    pair[side] = lazy
    said = _said(padiff.InputError, *pair, X)
    assert f"in the {('reference', 'candidate')[side]}, 'fc.weight' is a UninitializedParameter" in said
    assert "call the model once" in said
    assert lazy.fc.has_uninitialized_params(), "it was built in silence"


@pytest.mark.parametrize("side", [0, 1], ids=["reference", "candidate"])
def test_a_paddle_model_that_is_not_built_yet(side: int) -> None:
    import paddle

    with paddle.LazyGuard():
        lazy = mlp(kit("paddle"))
    pair = [mlp(kit("torch")), mlp(kit("torch"))]
    pair[side] = lazy
    said = _said(padiff.InputError, *pair, X)
    assert "'fc1.weight' has no values yet" in said
    assert ".initialize()" in said
    for parameter in lazy.parameters():
        parameter.initialize()
    assert_clean(padiff.diff(*pair, X))


# What newcomers stumble over --------------------------------------------------------------------------------


def _side(side: int) -> str:
    return ("reference", "candidate")[side]


@pytest.mark.parametrize("side", [0, 1], ids=["reference", "candidate"])
def test_a_model_on_the_meta_device_names_a_parameter(side: int) -> None:
    import torch

    pair = [mlp(kit("torch")), mlp(kit("torch"))]
    with torch.device("meta"):
        pair[side] = mlp(kit("torch"))
    said = _said(padiff.InputError, *pair, X)
    assert said.startswith(f"in the {_side(side)}, 'fc1.weight' ")
    assert "meta device and has no values" in said
    assert "to_empty" in said


@pytest.mark.parametrize("side", [0, 1], ids=["reference", "candidate"])
def test_a_paddle_model_that_is_not_built_yet_names_its_side(side: int) -> None:
    import paddle

    pair = [mlp(kit("torch")), mlp(kit("torch"))]
    with paddle.LazyGuard():
        pair[side] = mlp(kit("paddle"))
    said = _said(padiff.InputError, *pair, X)
    assert said.startswith(f"the {_side(side)}: 'fc1.weight' ")


@pytest.mark.parametrize("dtype", ["longdouble", "object", "str"])
def test_an_input_of_a_dtype_that_the_framework_lacks(dtype: str) -> None:
    said = _said(padiff.InputError, mlp(kit("torch")), mlp(kit("paddle")), {"x": X[0].astype(dtype)})
    assert said.startswith(f"the reference's input 'x' is {np.dtype(X[0].astype(dtype).dtype).name}[4, 8]: ")


def test_inputs_of_another_float_than_the_weights() -> None:
    models = mlp(kit("torch")), mlp(kit("torch")).bfloat16()
    said = _said(padiff.ForwardError, *models, {"x": X[0]})
    assert said.startswith("the candidate: the torch model Mlp raised")
    assert "parameters are bfloat16, and input 'x' is float32: give it as bfloat16 in candidate_inputs=" in said


def test_parameters_of_different_dtypes_are_said_to_be_and_copied_as_they_can_be() -> None:
    import ml_dtypes

    models = mlp(kit("torch")), mlp(kit("torch")).bfloat16()
    report = padiff.diff(*models, X, candidate_inputs=(X[0].astype(ml_dtypes.bfloat16),))
    said = [note.text for note in report.notes if "dtype" in note.text]
    assert len(said) == 1
    assert "the reference's parameters are float32, the candidate's bfloat16" in said[0]
    assert "bring both models to one dtype" in said[0]
    assert not [found for found in report.findings if found.phase is Phase.PARAMETER], told(report)


def _generator(y: Any) -> Any:
    return (one for one in [y])


@pytest.mark.parametrize(
    ("after", "seen", "hint"),
    [
        (lambda y: None, "but None", "does its forward end with a return?"),
        (_generator, "but a value of type generator", "a generator runs only while it is read"),
        (lambda y: 2.5, "but 2.5 of type float", "not what .item() or float() makes of it"),
        (lambda y: np.ones(2), "but a value of type numpy.ndarray", "not what .numpy() makes of it"),
    ],
    ids=["None", "generator", "number", "array"],
)
def test_what_came_in_place_of_a_tensor_is_named(after: Any, seen: str, hint: str) -> None:
    said = _said(padiff.UnusableReference, mlp(kit("torch"), after=after), mlp(kit("paddle")), X)
    assert f"the reference returned no tensor {seen}" in said
    assert hint in said
    said = _said(padiff.InputError, mlp(kit("torch")), mlp(kit("paddle"), after=after), X)
    assert f"the candidate Mlp returned no tensor {seen}" in said
    assert hint in said


def _spoiled(one: Kit, value: float) -> Any:
    model = mlp(one)
    values = np.zeros(tuple(model.fc2.weight.shape), np.float32)
    values[0, :2] = value
    one.assign(model.fc2.weight, values)
    return model


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_named(value: float) -> None:
    said = _said(padiff.UnusableReference, _spoiled(kit("torch"), value), mlp(kit("paddle")), X)
    assert "parameters of the reference hold NaN or Inf: 'fc2.weight' (2 of " in said
    assert "Hint: load or initialize its weights again" in said
    candidate = _spoiled(kit("paddle"), value)
    report = padiff.diff(mlp(kit("torch")), candidate, X, transfer=False)
    assert any("parameters of the candidate hold NaN or Inf: 'fc2.weight' (2 of " in n.text for n in report.notes)
    report = padiff.diff(mlp(kit("torch")), candidate, X)
    assert_clean(report)
    assert any("before the transfer" in n.text and "'fc2.weight' (2 of " in n.text for n in report.notes)


def test_one_object_on_both_sides_is_said_to_be() -> None:
    model = mlp(kit("torch"))
    report = padiff.diff(model, model, X)
    assert any("are the same object" in n.text for n in report.notes)
    holder = kit("torch").sequential(model)
    report = padiff.diff(model, holder, X)
    assert any("the two models share parameters" in n.text and "0.fc1.weight" in n.text for n in report.notes)
    report = padiff.diff(model, mlp(kit("torch")), X)
    assert not report.notes


@pytest.mark.parametrize("side", [0, 1], ids=["reference", "candidate"])
@pytest.mark.parametrize(
    ("text", "hint"),
    [("my_port:build", "padiff.remote('my_port:build')"), ("model.pt", "a file of weights is no model")],
)
def test_a_model_that_is_named_by_a_text(text: str, hint: str, side: int) -> None:
    pair = [mlp(kit("torch")), mlp(kit("torch"))]
    pair[side] = text
    said = _said(padiff.UnknownModel, *pair, X)
    assert said.startswith(f"the {_side(side)}: got the text {text!r}")
    assert hint in said


def test_a_mistyped_module_is_suggested_once() -> None:
    said = _said(padiff.MappingError, mlp(kit("torch")), mlp(kit("paddle")), X, mapping={"fc1": "fc11"})
    assert "did you mean 'fc1'" in said
    assert said.count("'fc1'") == 1


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("tolerence", "did you mean tolerance=?"),
        ("optimizer", "did you mean optimizers=?"),
        ("atol", "tolerance={'atol': 1}"),
        ("qqq", "there are candidate_inputs=, loss=, "),
    ],
)
def test_an_option_that_diff_lacks(name: str, hint: str) -> None:
    model = mlp(kit("torch"))
    said = _said(TypeError, model, model, X, **{name: 1})
    assert f"diff() has no option {name!r}" in said
    assert hint in said


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("what", [{"x": X[0]}, X], ids=["dict", "tuple"])
def test_inputs_in_the_place_of_a_model(what: Any, side: int) -> None:
    pair = [mlp(kit("torch")), mlp(kit("torch"))]
    pair[side] = what
    assert "inputs come third, diff(reference, candidate, inputs)" in _said(padiff.UnknownModel, *pair, X)


def test_no_inputs() -> None:
    model = mlp(kit("torch"))
    with pytest.raises(TypeError, match=r"'inputs'.\nHint: diff\(reference, candidate, inputs\)"):
        padiff.diff(model, model)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("inputs", "hint"),
    [
        (iter([X]), "of an iterator one item"),
        (lambda: X, "call a function that makes them"),
        (({"x": X[0]},), "for keyword arguments give that dict itself"),
        (X[0].tolist(), "no array or tensor among them"),
        ({"x": X[0].tolist()}, "Input 'x' is a list of numbers: give an array"),
    ],
    ids=["iterator", "function", "dict in a tuple", "lists of numbers", "a list of numbers"],
)
def test_inputs_in_a_wrong_container(inputs: Any, hint: str) -> None:
    with pytest.raises((padiff.InputError, padiff.ForwardError)) as caught:
        padiff.diff(mlp(kit("torch")), mlp(kit("torch")), inputs)
    assert hint in str(caught.value)


def test_indices_that_are_given_as_floats() -> None:
    import torch

    tables = [torch.nn.Embedding(9, 4) for _ in range(2)]
    said = _said(padiff.ForwardError, *tables, (np.arange(6, dtype="float32"),))
    assert "Input [0] holds whole numbers as floats: if these are indices, give int64." in said


def test_a_dict_for_each_model_in_place_of_inputs() -> None:
    import torch

    models, given = [torch.nn.Bilinear(8, 8, 4) for _ in range(2)], {"input1": X[0], "input2": X[0]}
    said = _said(padiff.ForwardError, *models, (given, given))
    assert "inputs={...}, candidate_inputs={...}" in said


def test_a_loader_in_place_of_inputs() -> None:
    import torch

    said = _said(padiff.InputError, mlp(kit("torch")), mlp(kit("torch")), torch.utils.data.DataLoader([1, 2]))
    assert "next(iter(inputs))" in said


def test_a_class_in_place_of_an_optimizer() -> None:
    import torch

    models = mlp(kit("torch")), mlp(kit("torch"))
    said = _said(padiff.InputError, *models, X, optimizers=torch.optim.SGD)
    assert "optimizers is the class SGD; expected a pair" in said
    said = _said(padiff.InputError, *models, X, optimizers=(torch.optim.SGD, torch.optim.SGD))
    assert "build it, on the parameters of the reference: SGD(...)" in said


@pytest.mark.parametrize("name", ["transfer", "operations"])
def test_a_text_in_place_of_yes_or_no(name: str) -> None:
    model = mlp(kit("torch"))
    assert f"{name} is 'no'; expected True or False" in _said(padiff.InputError, model, model, X, **{name: "no"})
