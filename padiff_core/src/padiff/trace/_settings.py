"""Compare what two modules were set to, and two operations were called with."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Protocol

import attrs

from padiff.kinds import CATALOGUE, CONVOLUTIONS, FUSED, PRODUCTS, SLIDING
from padiff.numerics import SETTING, epsilon_of
from padiff.paths import last
from padiff.pytree import leaves
from padiff.trace._records import Call, ModuleRecord, SettingRecord, Slot, Text

_NOT_FUSED = SettingRecord(None, "None")
_IDLE = {"stride": 1, "padding": (0, 0), "dilation": 1}
"""What a convolution is set to along an axis on which it does nothing."""
_LONGEST = 40
"""Characters of one argument that are shown."""


class Described(Protocol):
    """A call, or whatever else tells of a module and its hyper-parameters."""

    @property
    def module(self) -> ModuleRecord:
        """Return the module."""

    @property
    def settings(self) -> Mapping[str, SettingRecord]:
        """Return its hyper-parameters."""


@attrs.frozen
class Contrast:
    """A hyper-parameter that differs, with both values as their framework spells them."""

    setting: str
    reference: str
    candidate: str


def contrasts(reference: Described, candidate: Described) -> list[Contrast]:
    """Return the hyper-parameters of their kind in which two matched modules differ; or their kinds, if those do."""
    ours, theirs = reference.module, candidate.module
    if ours.kind is None or theirs.kind is None:
        return []
    if ours.kind != theirs.kind:
        kinds = {ours.kind, theirs.kind}
        products = ("linear" in kinds or kinds <= CONVOLUTIONS) and all(map(_is_product, (reference, candidate)))
        alike = products or kinds == {"embedding", "linear"}
        if not alike and kinds <= CONVOLUTIONS:
            return list(_of_fewer_axes(reference, candidate))
        return [] if alike else [Contrast("kind", _class(ours), _class(theirs))]
    return list(_settings(reference, candidate))


def _is_product(described: Described) -> bool:
    """Return whether a module may be a linear layer at each point, or on each patch."""
    padding, groups = (described.settings.get(name) for name in ("padding", "groups"))
    padded = padding is not None and any(one for _, one in leaves(padding.value, lambda x: isinstance(x, int | str)))
    return described.module.kind in PRODUCTS | SLIDING and not padded and (groups is None or groups.value == 1)


def contrasts_inside(reference: Call, candidate: Call) -> list[Contrast]:
    """Return the hyper-parameters in which a module differs from the one of its kind inside a wrapper that pads.

    A convolution or pooling that pads by itself is one module, where padding is a module of its own it is two. What
    the wrapper's padding does counts as the padding of the module inside.
    """
    ours, theirs = _Padded.of(reference, candidate.module.kind), _Padded.of(candidate, reference.module.kind)
    if ours is None or theirs is None or not (ours.pad or theirs.pad):
        return []
    found = [c for c in _settings(ours.call, theirs.call) if c.setting not in _Padded.NAMES]
    for name in _Padded.NAMES:
        a, b = ours.value(name), theirs.value(name)
        if a is not None and b is not None and not _same(a, b):
            found.append(Contrast(name, ours.spelled(a), theirs.spelled(b)))
    return found


@attrs.frozen
class _Padded:
    """A call of a module that pads, or of one that does not with that of the padding module before it."""

    NAMES: ClassVar[tuple[str, ...]] = ("padding", "padding_mode")

    call: Call
    pad: Call | None

    @classmethod
    def of(cls, call: Call, kind: str | None) -> _Padded | None:
        """Return the call itself, or in a wrapper of no kind the only one of this kind and the only padding."""
        if call.module.kind is not None:
            return cls(call, None)
        inside = list(call.subtree())
        found = [[one for one in inside if one.module.kind == name] for name in (kind, "pad")]
        return cls(found[0][0], found[1][0]) if kind is not None and [len(x) for x in found] == [1, 1] else None

    def value(self, name: str) -> Any:
        """Return the padding that both make together, or its mode; None where it is not known."""
        own = settings_of(self.call).get(name)
        if self.pad is None:
            return own
        before = settings_of(self.pad)
        if name == "padding_mode":
            mode = before.get("mode")
            return "zeros" if mode == "constant" and before.get("value", 0.0) == 0.0 else mode
        pairs = before.get("padding")
        if not isinstance(own, tuple) or not isinstance(pairs, tuple):
            return None
        return tuple((a + c, b + d) for (a, b), (c, d) in zip(own, pairs[-len(own) :], strict=True))

    def spelled(self, value: Any) -> str:
        """Return a value, followed by the class of the padding module."""
        return f"{value!r}" if self.pad is None else f"{value!r} (by {self.pad.module.class_name.rpartition('.')[2]})"


def _settings(reference: Described, candidate: Described) -> Iterator[Contrast]:
    assert reference.module.kind is not None
    kind = CATALOGUE[reference.module.kind]
    eps = epsilon_of("float32") if kind.stochastic else 0.0
    for name in kind.settings:
        # A class that says nothing of a fused activation has none.
        default = _NOT_FUSED if name == FUSED else None
        ours, theirs = reference.settings.get(name, default), candidate.settings.get(name, default)
        if ours is not None and theirs is not None and not _same(ours.value, theirs.value, eps):
            yield Contrast(name, ours.spelled, theirs.spelled)


def _of_fewer_axes(reference: Described, candidate: Described) -> Iterator[Contrast]:
    """Yield the hyper-parameters in which two convolutions differ of which one has more axes, that do nothing there."""
    for contrast in _settings(reference, candidate):
        ours, theirs = (side.settings[contrast.setting].value for side in (reference, candidate))
        both = isinstance(ours, tuple) and isinstance(theirs, tuple)
        longer, shorter = sorted((ours, theirs), key=len, reverse=True) if both else ((), ())
        idle = _IDLE.get(contrast.setting)
        rests = itertools.combinations(range(len(longer)), len(longer) - len(shorter))
        if not any(
            all(longer[axis] == idle for axis in axes)
            and _same(tuple(one for axis, one in enumerate(longer) if axis not in axes), shorter)
            for axes in (rests if both else ())
        ):
            yield contrast


def settings_of(described: Described) -> dict[str, Any]:
    """Return the hyper-parameters in the catalogue's convention; of those that the module's class spells."""
    found = {name: setting.value for name, setting in described.settings.items()}
    return {name: float(f"{value:.9g}") if isinstance(value, float) else value for name, value in found.items()}


def _same(a: Any, b: Any, eps: float = 0.0) -> bool:
    if isinstance(a, float) or isinstance(b, float):
        try:
            return abs(float(a) - float(b)) <= SETTING(eps) * max(abs(float(a)), abs(float(b)))
        except (TypeError, ValueError):
            return False
    return bool(a == b)


def _class(module: ModuleRecord) -> str:
    return f"{module.kind} ({module.class_name.rpartition('.')[2]})"


def called_otherwise(reference: Call, candidate: Call) -> tuple[str, str] | None:
    """Return how each side calls an operation, where that differs in more than names: numbers, words and ranges."""
    if not (reference.module.operation and candidate.module.operation):
        return None
    if plain_values(reference) == plain_values(candidate):
        return None
    return as_called(reference), as_called(candidate)


def called_alike(reference: Call, candidate: Call) -> bool:
    """Return whether both sides call one function alike: on tensors of one sort, numbers, words and ranges."""
    calls = reference, candidate
    ours, theirs = ([(leaf.dtype, leaf.shape) for leaf in call.inputs] for call in calls)
    texts = (leaves((call.args, call.kwargs), lambda one: isinstance(one, Text)) for call in calls)
    return (
        all(call.module.operation for call in calls)
        and last(reference.path) == last(candidate.path)
        and ours == theirs
        and plain_values(reference) == plain_values(candidate)
        and not any(map(any, texts))
    )


def is_sampling(call: Call) -> bool:
    """Return whether a call is of a module that samples random numbers, and is at work."""
    kind = CATALOGUE.get(call.module.kind or "")
    return bool(kind and kind.stochastic and call.training) and settings_of(call).get("p") != 0


def samples_otherwise(reference: Call, candidate: Call) -> bool:
    """Return whether both sides call a function with as many fractions, and with others: 0.5 here, 0.3 there."""
    if not (reference.module.operation and candidate.module.operation):
        return False
    ours, theirs = (
        sorted(value for _, value in leaves((call.args, call.kwargs), lambda value: isinstance(value, float)))
        for call in (reference, candidate)
    )
    return len(ours) == len(theirs) and not all(map(_same, ours, theirs))


def plain_values(call: Call) -> list[str]:
    """Return the numbers, words and ranges among a call's arguments, as they read."""
    kwargs = {name: value for name, value in call.kwargs.items() if not name.startswith("_")}
    values = (value for _, value in leaves((call.args, kwargs), lambda one: isinstance(one, float | int | str | slice)))
    return [f"{value:.9g}" if isinstance(value, float | int) else repr(value) for value in values]


def as_called(call: Call, names: Sequence[str] = ()) -> str:
    """Return a call with its plain arguments, and for each tensor its name or ``_``: ``div(_, 2.0)``.

    A module in a list is called by its class: `0` says nothing. One without parameters is told with its settings, as
    a function has them among its arguments.
    """
    given = [_shown(value, names) for value in call.args]
    told = {name: value for name, value in call.kwargs.items() if value is not None and not name.startswith("_")}
    given += [f"{name}={_shown(value, names)}" for name, value in told.items()]
    kind = CATALOGUE.get(call.module.kind or "")
    if kind is not None and not kind.roles:
        given += [f"{one}={call.settings[one].spelled}" for one in kind.settings if one in call.settings]
    name = last(call.path)
    name = name if name and not name.isdigit() else call.module.class_name.rpartition(".")[2]
    return f"{name}({', '.join(given)})"


def _shown(value: Any, names: Sequence[str]) -> str:
    if isinstance(value, Slot):
        return names[value.index] if names else "_"
    if isinstance(value, list | tuple):
        inside = ", ".join(_shown(one, names) for one in value)
        return f"[{inside}]" if isinstance(value, list) else f"({inside}{',' if len(value) == 1 else ''})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{name!r}: {_shown(one, names)}' for name, one in value.items())}}}"
    if isinstance(value, slice):
        ends = ["" if end is None else _shown(end, names) for end in (value.start, value.stop, value.step)]
        return ":".join(ends if ends[2] else ends[:2])
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
