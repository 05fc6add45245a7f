"""Read optimizers' hyper-parameters, under the names that all frameworks share."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from padiff.kinds import EPS_PLACE

Family = tuple[str, str, Mapping[str, str]]
"""A class's bare name, its family's name, and the attribute of each hyper-parameter by the common name."""

_NAMES = {"rmsprop": {"alpha": "rho"}}
"""Family -> what its own class calls a hyper-parameter, and the common name of that."""
UNSCALED: Mapping[str, Any] = {EPS_PLACE: "added to the root before its bias is corrected"}
"""The rule of an Adam that adds its epsilon in front of the correction of the second moment's bias."""
UNCORRECTED: Mapping[str, Any] = {"bias_correction": False}
"""The rule of an Adam that does not correct its moments' biases."""
_CORRECTED: dict[str, Any] = {EPS_PLACE: "added to the root", "bias_correction": True}
_GROUPED: dict[str, dict[str, Any]] = {"rmsprop": {EPS_PLACE: "added to the root"}}
_PLAIN: dict[str, dict[str, Any]] = {"rmsprop": {EPS_PLACE: "added under the root"}}
_RULES: dict[str, dict[str, Any]] = {"adam": _CORRECTED, "adamw": _CORRECTED}
"""Family -> its rules, as most frameworks have them; others, by whether an optimizer holds groups (torch and mint)."""
_PAIRS = {
    "betas": ("beta1", "beta2"),
    "etas": ("eta_minus", "eta_plus"),
    "step_sizes": ("step_min", "step_max"),
}


def plain(value: Any) -> Any:
    """Return a Python number for a tensor of one element, without the dust of float32; anything else as it is."""
    if isinstance(value, bool | int | float | str) or not hasattr(value, "item") or np.prod(np.shape(value)) != 1:
        return value
    number = value.item()
    single = isinstance(number, float) and "32" in str(getattr(value, "dtype", ""))
    return float(str(np.float32(number))) if single else number


def of_groups(
    groups: Iterable[Mapping[str, Any]],
    implementation: Collection[str],
    family: str,
    rules: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return ``class`` and the hyper-parameters of parameter groups; from group 1 on they are prefixed ``group1.``.

    ``implementation`` are entries that say how an optimizer computes, and not what; ``family`` tells what its own names
    mean, ``rules`` where it computes otherwise than others of its family (`padiff.kinds`).
    """
    names, found = _NAMES.get(family, {}), {"class": family}
    rules = {**(_RULES | _GROUPED).get(family, {}), **rules}
    for index, group in enumerate(groups):
        prefix = f"group{index}." if index else ""
        for name in (one for one in group if one not in implementation):
            for one, item in _apart(name, group[name]):
                found[f"{prefix}{names.get(one, one)}"] = plain(item)
        found |= {f"{prefix}{name}": rule for name, rule in rules.items()}
    return found


def _apart(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the names and values of what one entry holds: betas may be three, or one number; ``eps`` may be two."""
    several = isinstance(value, list | tuple) and all(isinstance(one, int | float) for one in map(plain, value))
    if not several:
        yield name, value
    elif name in _PAIRS and len(value) == len(_PAIRS[name]):
        yield from zip(_PAIRS[name], value, strict=True)
    else:
        stem, first = (name.removesuffix("s"), "{}") if name in _PAIRS else (name, "[{}]")
        yield from ((stem + first.format(index), one) for index, one in enumerate(value, name in _PAIRS))


def of_family(
    optimizer: Any, families: Iterable[Family], rules: Mapping[str, Mapping[str, Any]] = MappingProxyType({})
) -> dict[str, Any]:
    """Return ``class`` and the hyper-parameters of the first family that the optimizer's class is derived from.

    The most derived classes come first; of none of them, its own class's name is all that is known. ``rules`` tell of
    classes where they compute otherwise than others of their family (`padiff.kinds`).
    """
    names = [cls.__name__ for cls in type(optimizer).__mro__]
    for name, family, attributes in families:
        if name in names:
            found = {common: plain(getattr(optimizer, attribute)) for common, attribute in attributes.items()}
            return {"class": family, **found, **(_RULES | _PLAIN).get(family, {}), **rules.get(name, {})}
    return {"class": names[0].lower()}
