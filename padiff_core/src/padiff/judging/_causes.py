"""Name the causes that both sides' records show: hyper-parameters and arguments that differ.

What differs is a cause only where it is verified: the code is the framework's own on both sides and was fed the same
values, so that nothing else is left; or the module, set as the reference is, gives what the reference gives. Else it is
told as evidence.
"""

from __future__ import annotations

from collections.abc import Sequence

from padiff.alignment import Pair
from padiff.kinds import ORDER_SETTINGS
from padiff.report import SIDES, Cause, Evidence, Phase
from padiff.trace import (
    Contrast,
    ModuleRecord,
    as_called,
    called_otherwise,
    contrasts,
    contrasts_inside,
    plain_values,
)

_FEW = 8
"""As many plain arguments say something."""
OF_STATE = frozenset({"momentum"})
"""Hyper-parameters that change what is kept for later, not what is given."""
OF_PARAMETERS = frozenset({"hidden_size", "num_layers", "bidirectional"})
"""Hyper-parameters that say which parameters there are: set otherwise, a kernel reads what is not there."""
KEPT = "track"
"""The hyper-parameter that says whether statistics are kept for later."""
_OF_SHAPES = OF_PARAMETERS | {"kind", "groups", "normalized_shape", KEPT}
"""Hyper-parameters of which the shapes of parameters follow, or whether there are any."""


def cause_of(found: Sequence[Contrast]) -> Cause | None:
    """Return hyper-parameters that differ as the cause of another shape of parameters; None where none says one."""
    says_one = any(one.setting in _OF_SHAPES for one in found)
    return Cause("settings", as_parameters(found), verified=True) if says_one else None


def as_parameters(found: Sequence[Contrast]) -> dict[str, dict[str, str]]:
    """Return hyper-parameters that differ as a cause holds them."""
    return {one.setting: {"reference": one.reference, "candidate": one.candidate} for one in found}


def cause_between(pair: Pair, phase: Phase) -> Cause | None:
    """Return in what two matched calls differ but for their values: settings, or an operation's arguments."""
    ours, theirs = pair.reference, pair.candidate
    found = contrasts(ours, theirs) or contrasts_inside(ours, theirs)
    if found:
        own = all(is_frameworks(call.module) for call in (ours, theirs) if call.module.kind is not None)
        without = (OF_STATE if phase is not Phase.BUFFER else frozenset()) | (
            ORDER_SETTINGS if pair.misfed else frozenset()
        )
        matters = any(one.setting not in without for one in found)
        return Cause("settings", as_parameters(found), verified=own and matters)
    called = called_otherwise(ours, theirs)
    return called and Cause("arguments", {"reference": called[0], "candidate": called[1]}, verified=not pair.misfed)


def called_with(pair: Pair) -> tuple[Evidence, ...]:
    """Return how each side calls a module, where numbers and words among the arguments differ: callers may be wrong."""
    calls = pair.reference, pair.candidate
    ours, theirs = map(plain_values, calls)
    if ours == theirs or max(len(ours), len(theirs)) > _FEW or any(call.module.operation for call in calls):
        return ()
    return (Evidence("called_with", dict(zip(SIDES, map(as_called, calls), strict=True))),)


def is_frameworks(module: ModuleRecord) -> bool:
    """Return whether a module's class comes from the package that the base of its classes comes from."""
    roots = [name.partition(".")[0] for name in module.classes]
    roots = [root for root in roots if not root.startswith("pybind11")]
    return not roots or roots[0] == roots[-1]


def not_verified(found: Cause) -> Evidence:
    """Return an unverified cause as a piece of evidence."""
    return Evidence(f"unverified_{found.name}", found.parameters)
