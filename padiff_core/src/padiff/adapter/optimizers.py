"""Read optimizers' hyper-parameters, under the names that all frameworks share."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

Family = tuple[str, str, Mapping[str, str]]
"""A class's bare name, its family's name, and the attribute of each hyper-parameter by the common name."""

_NAMES = {"rmsprop": {"alpha": "rho"}}
"""Family -> what its own class calls a hyper-parameter, and the common name of that."""
_ROOT = "rmsprop"
"""The family whose epsilon frameworks put at two places: torch and mint have groups, the others do not."""
_PAIRS = {
    "betas": ("beta1", "beta2"),
    "etas": ("eta_minus", "eta_plus"),
    "step_sizes": ("step_min", "step_max"),
}


def plain(value: Any) -> Any:
    """Return a Python number for a tensor of one element, without the dust of float32; anything else as it is."""
    if isinstance(value, bool | int | float | str) or not hasattr(value, "item"):
        return value
    number = value.item()
    single = isinstance(number, float) and "32" in str(getattr(value, "dtype", ""))
    return float(f"{number:.7g}") if single else number


def of_groups(groups: Iterable[Mapping[str, Any]], implementation: Collection[str], family: str) -> dict[str, Any]:
    """Return ``class`` and the hyper-parameters of parameter groups; from group 1 on they are prefixed ``group1.``.

    ``implementation`` are entries that say how an optimizer computes, and not what; ``family`` tells what its own names
    mean.
    """
    names, found = _NAMES.get(family, {}), {"class": family}
    for index, group in enumerate(groups):
        prefix = f"group{index}." if index else ""
        for name in (one for one in group if one not in implementation):
            values = group[name] if name in _PAIRS else (group[name],)
            for one, item in zip(_PAIRS.get(name, (name,)), values, strict=True):
                found[f"{prefix}{names.get(one, one)}"] = plain(item)
        if family == _ROOT:
            found[f"{prefix}eps_place"] = "added to the root"
    return found


def of_family(optimizer: Any, families: Iterable[Family]) -> dict[str, Any]:
    """Return ``class`` and the hyper-parameters of the first family that the optimizer's class is derived from.

    The most derived classes come first; of none of them, its own class's name is all that is known.
    """
    names = [cls.__name__ for cls in type(optimizer).__mro__]
    for name, family, attributes in families:
        if name in names:
            found = {common: plain(getattr(optimizer, attribute)) for common, attribute in attributes.items()}
            return {"class": family, **found, **({"eps_place": "added under the root"} if family == _ROOT else {})}
    return {"class": names[0].lower()}
