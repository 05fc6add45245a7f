"""Tell the documented forms of auto_diff apart, and refuse what is none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff
from padiff import InputError, LayerMap, auto_diff

from .nets import DIRECTIONS, mlp, pair

X = pair(("paddle", "torch"))
Y = pair(("torch", "paddle"))


def _weights(model: Any) -> np.ndarray:
    weight = model.fc1.weight.detach().numpy().copy()
    return weight if type(model.fc1).__module__.startswith("torch") else weight.T


def _moved(first: Any, second: Any, *given: Any, **keywords: Any) -> str:
    """Return which model auto_diff wrote to, and require that both are then equal."""
    before = _weights(first), _weights(second)
    assert auto_diff(first, second, *given, **keywords) is True
    after = _weights(first), _weights(second)
    assert np.array_equal(*after)
    kept = [np.array_equal(a, b) for a, b in zip(before, after, strict=True)]
    assert sorted(kept) == [False, True]
    return ("first", "second")[kept.index(False)]


@pytest.mark.parametrize("frameworks", DIRECTIONS, ids="-".join)
@pytest.mark.parametrize(
    "keywords",
    [
        {},
        {"atol": 1e-4},
        {"auto_init": True},
        {"single_step": True},
        {"loss_fns": None},
        {"auto_weights": True, "atol": 1e-4},
    ],
    ids=lambda given: "+".join(given) or "none",
)
def test_the_base_model_gives_its_weights(frameworks: tuple[str, str], keywords: dict[str, Any]) -> None:
    assert _moved(mlp(frameworks[0]), mlp(frameworks[1]), pair(frameworks), **keywords) == "second"


@pytest.mark.parametrize(
    "keywords",
    [
        {"auto_weights": True},
        {"options": {"atol": 1e-4}},
        {"layer_map": LayerMap()},
        {"layer_map": {}},
        {"layer_mapping": {}, "options": {}},
        {"steps": 1},
        {"loss_fn": [lambda y: (y * y).mean(), lambda y: (y * y).mean()]},
    ],
    ids=lambda given: "+".join(given),
)
def test_the_torch_module_gives_its_weights_to_the_paddle_layer(keywords: dict[str, Any]) -> None:
    assert _moved(mlp("paddle"), mlp("torch"), X, **keywords) == "first"


def test_models_may_be_named() -> None:
    layer, module = mlp("paddle"), mlp("torch")
    assert auto_diff(layer=layer, module=module, example_inp=X, auto_weights=True)
    assert auto_diff(base_model=module, raw_model=layer, inputs=Y)


@pytest.mark.parametrize(
    "given",
    [
        (True,),
        (True, 1, {"atol": 1e-4}, {}, None, None),  # document 002
        (True, {}, {"atol": 1e-4}),  # document 003
        (True, {"atol": 1e-4}, {}),  # the package 0.1
    ],
    ids=["auto_weights", "002", "003", "0.1"],
)
def test_places_of_the_older_form(given: tuple[Any, ...]) -> None:
    assert _moved(mlp("paddle"), mlp("torch"), X, *given) == "first"


def test_places_of_the_newer_form(capsys: pytest.CaptureFixture[str]) -> None:
    def loss(y: Any) -> Any:
        return (y * y).mean()

    assert _moved(mlp("paddle"), mlp("torch"), X, [loss, loss], None) == "second"
    assert "use_loss: `True`" in capsys.readouterr().out


@pytest.mark.parametrize(
    "keywords", [{"layer_map": {}}, {"auto_weights": True}, {"layer_map": LayerMap(), "atol": 1e-4}]
)
def test_a_torch_model_first_is_the_base_model_where_no_keyword_says_otherwise(keywords: dict[str, Any]) -> None:
    assert _moved(mlp("torch"), mlp("paddle"), Y, **keywords) == "second"


def test_the_older_form_wants_paddle_first() -> None:
    with pytest.raises(InputError, match="Paddle model first"):
        auto_diff(mlp("torch"), mlp("paddle"), Y, options={"atol": 1e-4})


@pytest.mark.parametrize("keywords", [{"auto_weights": False}, {"auto_init": False}])
def test_without_initialisation_the_weights_are_compared(
    keywords: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    layer, module = mlp("paddle"), mlp("torch")
    assert auto_diff(layer, module, X, **keywords) is False
    said = capsys.readouterr().out
    assert "Differences in weight or grad !!!" in said
    assert "Diff found in `Weights before the run` in step: 0" in said
    assert padiff.assign_weight(module, layer)
    assert auto_diff(layer, module, X, **keywords) is True


@pytest.mark.parametrize(
    ("keywords", "said"),
    [
        ({"atoll": 1e-4}, "unexpected keyword argument 'atoll'.\nHint: did you mean atol="),
        ({"whatever": 1}, "unexpected keyword argument 'whatever'"),
        ({"options": {"atoll": 1}}, "options has 'atoll'.\nHint: it takes atol, rtol"),
        ({"options": {}, "atol": 1e-4}, "the two copy weights in opposite directions"),
        ({"loss_fn": None, "loss_fns": None}, "twice, or under two names"),
        ({"auto_weights": True, "auto_init": True}, "twice, or under two names"),
    ],
)
def test_keywords_that_are_none_are_errors(keywords: dict[str, Any], said: str) -> None:
    with pytest.raises(TypeError) as caught:
        auto_diff(mlp("paddle"), mlp("torch"), X, **keywords)
    assert said in str(caught.value)


def test_missing_and_surplus_arguments_are_errors() -> None:
    with pytest.raises(TypeError, match="misses inputs"):
        auto_diff(mlp("torch"), mlp("paddle"))
    with pytest.raises(TypeError, match="misses example_inp"):
        auto_diff(layer=mlp("paddle"), module=mlp("torch"))
    with pytest.raises(TypeError, match="at most 5 arguments by position"):
        auto_diff(mlp("torch"), mlp("paddle"), Y, None, None, 1e-4)
    with pytest.raises(TypeError, match="twice"):
        auto_diff(mlp("torch"), mlp("paddle"), Y, inputs=Y)


@pytest.mark.parametrize(
    ("keywords", "said"),
    [
        ({"diff_phase": "forwards"}, "diff_phase is 'forwards'"),
        ({"compare_mode": "max"}, "compare_mode is 'max'"),
        ({"compare_mode": "max", "atol": 1}, "compare_mode is 'max'"),
        ({"atol": -1}, "atol=-1"),
        ({"atol": "1e-4"}, "atol='1e-4'"),
        ({"loss_fns": abs}, "loss functions: got a builtin_function_or_method"),
        ({"optimizers": [1, 2, 3]}, "optimizers: got a list of 3"),
        ({"model_names": "ab c"}, "model_names: got a str of 4"),
    ],
)
def test_values_that_make_no_sense_are_errors(keywords: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as caught:
        auto_diff(mlp("torch"), mlp("paddle"), Y, **keywords)
    assert said in str(caught.value)


@pytest.mark.parametrize("inputs", [Y[0], Y[0]["x"], (Y[0],), None], ids=["dict", "tensor", "one", "none"])
def test_inputs_are_a_pair(inputs: Any) -> None:
    with pytest.raises(InputError, match=r"inputs: got a .*; expected a pair, one for each model"):
        auto_diff(mlp("torch"), mlp("paddle"), inputs)


def test_an_input_of_another_name_is_an_error() -> None:
    with pytest.raises(InputError, match="the inputs do not fit"):
        auto_diff(mlp("torch"), mlp("paddle"), ({"x": Y[0]["x"]}, {"y": Y[1]["x"]}))


def test_inputs_that_differ_part(capsys: pytest.CaptureFixture[str]) -> None:
    other = pair(("torch", "paddle"), np.ones((4, 8), np.float32))
    for keywords in ({}, {"atol": 1e-4}, {"single_step": True}):
        assert auto_diff(mlp("torch"), mlp("paddle"), (Y[0], other[1]), **keywords) is False
        assert "the inputs themselves differ, in 'x'" in capsys.readouterr().out


def test_models_may_be_given_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert not auto_diff(mlp("paddle"), mlp("paddle", after=lambda y: y * 2), (X[0], X[0]), model_names=["old", "new"])
    said = capsys.readouterr().out
    assert "Route: old(base_model)\n[AutoDiff]            new(raw_model)\n" in said
