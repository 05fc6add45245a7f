"""Bring a documented call of auto_diff into the engine's own words, and check it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from padiff.compat._forms import OPTIONS, Form, call_of
from padiff.compat._proxy import ProxyModel, mapping_of, unwrapped
from padiff.errors import InputError, check_one_of
from padiff.isolation import side_of

_PHASES = ("both", "forward", "backward")
_MODES = ("mean", "strict")
_DOCUMENTED = {"atol": 0.0, "rtol": 1e-7, "compare_mode": "mean"}


@attrs.frozen
class Arguments:
    """What a call asks for. Pairs are in the order of the arguments, ``reference`` says which is right."""

    form: Form
    models: tuple[Any, Any]
    reference: int
    inputs: tuple[Any, Any]
    losses: tuple[Any, Any] | None
    optimizers: tuple[Any, Any] | None
    transfer: bool
    mapping: Any
    tolerance: Mapping[str, Any] | None
    """The classic rule; None where neither atol nor rtol was given, and the measured floor decides."""
    compare_mode: str
    phase: str
    single_step: bool
    steps: int
    names: tuple[str, str]
    proxies: tuple[Any, Any]
    """The models as they were given: wrapped, or themselves."""
    changed: tuple[str, ...] = ()
    """What of the call had no meaning together and was left out, one sentence each."""

    def ordered(self, pair: tuple[Any, Any]) -> tuple[Any, Any]:
        """Return a pair of the arguments' order with the reference's first."""
        return pair if self.reference == 0 else (pair[1], pair[0])


def is_swapped(first: Any, second: Any) -> bool:
    """Return whether the first model is torch's and the second Paddle's, as document 002 never has it."""
    return [side_of(unwrapped(model)).about.framework for model in (first, second)] == ["torch", "paddle"]


def arguments_of(given: Sequence[Any], keywords: Mapping[str, Any]) -> Arguments:
    """Return what a call asks for.

    Raises ``TypeError`` for keywords that do not exist or do not go together, `InputError` for values that make no
    sense.
    """
    swapped = is_swapped(given[0], given[1]) if len(given) > 1 else False
    form, values = call_of(given, keywords, swapped=swapped)
    proxies = values["first"], values["second"]
    models = unwrapped(proxies[0]), unwrapped(proxies[1])
    if form is Form.LAYER and is_swapped(*models):
        msg = (
            "auto_diff(layer, module, ...) takes the Paddle model first and torch's second, and got them the other way "
            "round.\nHint: auto_diff(layer, module, ...), or auto_diff(base_model, raw_model, ...) with atol=, rtol=, "
            "... named directly instead of in options={}."
        )
        raise InputError(msg)
    options = _options(values)
    tolerance = {key: options[key] for key in ("atol", "rtol") if options.get(key) is not None}
    mode = options.get("compare_mode", "mean")
    check_one_of("compare_mode", mode, _MODES)
    phase, steps, optimizers, changed = _sensible(values, options)
    return Arguments(
        form=form,
        models=models,
        reference=0 if form is Form.BASE else 1,
        inputs=_pair("inputs", values["inputs"], _SAMPLES),
        losses=_optional_pair("loss functions", values.get("losses")),
        optimizers=optimizers,
        transfer=bool(values.get("transfer", True)),
        mapping=mapping_of(proxies, values.get("mapping")),
        tolerance={**_DOCUMENTED, **tolerance, "compare_mode": mode} if tolerance else None,
        compare_mode=mode,
        phase=phase,
        single_step=bool(options.get("single_step", False)),
        steps=steps,
        names=_names(values.get("names"), proxies),
        proxies=proxies,
        changed=tuple(changed),
    )


def _options(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options, given by name or in a dict."""
    inside = values.get("options")
    inside = {} if inside is None else inside
    if not isinstance(inside, Mapping):
        msg = f"options is {type(inside).__qualname__}; expected a dict.\nHint: options={{'atol': 1e-4}}."
        raise InputError(msg)
    unknown = [key for key in inside if key not in OPTIONS]
    if unknown:
        msg = f"options has {', '.join(map(repr, unknown))}.\nHint: it takes {', '.join(OPTIONS)}."
        raise TypeError(msg)
    return {**inside, **{name: values[name] for name in OPTIONS if name in values}}


def _sensible(
    values: Mapping[str, Any], options: Mapping[str, Any]
) -> tuple[str, int, tuple[Any, Any] | None, list[str]]:
    """Return phase, steps and optimizers, and what had to be left out, as the documents say."""
    changed = []
    phase = options.get("diff_phase", "both")
    check_one_of("diff_phase", phase, _PHASES)
    optimizers = _optional_pair("optimizers", values.get("optimizers"))
    steps = values.get("steps", 1)
    if phase == "backward" and not options.get("single_step", False):
        phase = "both"
        changed.append("diff_phase `backward` is for single_step alone: both phases are compared.")
    if phase == "forward" and optimizers is not None:
        optimizers = None
        changed.append("diff_phase is `forward`: the optimizers are not used.")
    if optimizers is None and steps != 1 and isinstance(steps, int) and steps > 1:
        steps = 1
        changed.append("steps is set to 1: without optimizers and a backward pass every step is the same.")
    return phase, steps, optimizers, changed


_SAMPLES = "({'x': array}, {'x': array}), in the order of the models"


def _pair(name: str, value: Any, example: str) -> tuple[Any, Any]:
    if not isinstance(value, tuple | list) or len(value) != 2:
        seen = f"{type(value).__qualname__} of {len(value)}" if hasattr(value, "__len__") else type(value).__qualname__
        msg = f"{name}: got a {seen}; expected a pair, one for each model.\nHint: {example}."
        raise InputError(msg)
    return value[0], value[1]


def _optional_pair(name: str, value: Any) -> tuple[Any, Any] | None:
    return None if value is None else _pair(name, value, f"[for_the_first, for_the_second] {name}")


def _names(names: Any, models: tuple[Any, Any]) -> tuple[str, str]:
    if names is not None:
        first, second = _pair("model_names", names, "['base', 'raw']")
        return str(first), str(second)
    first, second = (
        model.name if isinstance(model, ProxyModel) else side_of(model).about.class_name for model in models
    )
    return first, second
