"""Take what a user says about which modules belong together, or are none of padiff's business."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import attrs

from padiff.adapter import Model, Module
from padiff.errors import MappingError

__all__ = ["LayerMap", "Resolved", "resolve"]


class LayerMap:
    """Say which modules correspond, and which to ignore.

    ``map`` ties modules of the two models, in either order: ``{layer.attn: module.attn}``. A tied pair is
    compared as a whole; what is inside it is not. Modules may be given as the objects themselves or by their
    dotted paths, and to `ignore` several in a list.
    """

    def __init__(self, map: Mapping[Any, Any] | None = None) -> None:
        self.map: dict[Any, Any] = dict(map or {})
        self.ignored: list[Any] = []
        self.ignored_with_children: list[Any] = []
        self.ignored_classes: list[tuple[Any, Any]] = []

    def ignore(self, module: Any) -> None:
        """Ignore a module's own outputs, gradients and parameters; its children are still compared."""
        self.ignored.extend(_several(module))

    def ignore_recursively(self, module: Any) -> None:
        """Ignore a module and everything below it."""
        self.ignored_with_children.extend(_several(module))

    ignore_recursivly = ignore_recursively

    def ignore_class(self, module: Any, cls: type | tuple[type, ...]) -> None:
        """Ignore every module of a class, or of one of several, at and below a module."""
        self.ignored_classes.extend((module, one) for one in (cls if isinstance(cls, tuple) else (cls,)))

    def auto(self, first: Any, second: Any) -> bool:
        """Return True: attention, recurrent and normalisation layers are tied without an entry here.

        PaDiff 0.2 looked for them when its scripts said so.
        """
        return True


def _several(entry: Any) -> list[Any]:
    return list(entry) if isinstance(entry, list | tuple | set | frozenset) else [entry]


@attrs.frozen
class Resolved:
    """Hold a mapping: pairs of paths, reference to candidate, and the ids of ignored native modules."""

    pairs: Mapping[str, str] = attrs.field(factory=dict)
    ignored: frozenset[int] = frozenset()


def resolve(mapping: LayerMap | Mapping[Any, Any] | None, reference: Model, candidate: Model) -> Resolved:
    """Find the modules that a mapping names.

    Raises `MappingError` for an entry that is in neither model, that ties two modules of one model, or that
    ties a module twice.
    """
    if mapping is None:
        return Resolved()
    layer_map = mapping if isinstance(mapping, LayerMap) else _from_dict(mapping)
    tied: Any = layer_map.map
    if not isinstance(tied, Mapping):
        msg = (
            f"LayerMap.map is {type(tied).__qualname__}; expected a dict of modules.\n"
            "Hint: layer_map.map = {layer.attn: module.attn}"
        )
        raise MappingError(msg)
    finder = _Finder(reference, candidate)
    pairs = _one_to_one(finder.pair(a, b) for a, b in tied.items())
    ignored: set[int] = set()
    for entry in layer_map.ignored:
        ignored.update(id(module) for module, _ in finder.modules(entry))
    for entry in layer_map.ignored_with_children:
        ignored.update(id(module) for module in finder.below(entry))
    for entry, cls in layer_map.ignored_classes:
        if not isinstance(cls, type | str):
            msg = (
                f"LayerMap ignores the class {_shown(cls)}, which is no class.\n"
                "Hint: give the class itself: layer_map.ignore_class(module, nn.Linear)"
            )
            raise MappingError(msg)
        found = [module.native for module in finder.modules_below(entry) if module.is_a(cls)]
        if not found:
            name = cls if isinstance(cls, str) else cls.__qualname__
            msg = (
                f"LayerMap ignores the class {name}, and no module of it is at or below "
                f"{_shown(entry)}.\n"
                "Hint: give the class of the modules themselves, and a module that holds some."
            )
            raise MappingError(msg)
        ignored.update(map(id, found))
    return Resolved(pairs, frozenset(ignored))


def _one_to_one(found: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return pairs of paths as a dict; raise `MappingError` where a module of either side is tied twice."""
    pairs: dict[str, str] = {}
    back: dict[str, str] = {}
    for ours, theirs in found:
        if pairs.setdefault(ours, theirs) != theirs:
            raise MappingError(_twice("reference", ours, pairs[ours], theirs))
        if back.setdefault(theirs, ours) != ours:
            raise MappingError(_twice("candidate", theirs, back[theirs], ours))
    return pairs


def _twice(side: str, path: str, first: str, second: str) -> str:
    return (
        f"LayerMap ties the {side}'s {path!r} twice: to {first!r} and to {second!r}; expected was one.\n"
        "Hint: leave one of the two entries out, or tie the modules that hold them all."
    )


def _from_dict(mapping: Any) -> LayerMap:
    if not isinstance(mapping, Mapping):
        msg = (
            f"mapping is {type(mapping).__qualname__}, not a padiff.LayerMap or a dict of modules.\n"
            "Hint: layer_map = padiff.LayerMap(); layer_map.map = {layer.attn: module.attn}"
        )
        raise MappingError(msg)
    return LayerMap(mapping)


class _Finder:
    """Look modules up in two models, by object or by path."""

    def __init__(self, reference: Model, candidate: Model) -> None:
        self._models = (reference, candidate)
        self._modules = tuple(dict(model.modules()) for model in self._models)
        self._paths = tuple({id(m.native): path for path, m in found.items()} for found in self._modules)

    def modules(self, entry: Any) -> list[tuple[Any, int]]:
        """Return the native modules that an entry names, with the side each is on (0 the reference)."""
        found = []
        for side in (0, 1):
            if isinstance(entry, str):
                if entry in self._modules[side]:
                    found.append((self._modules[side][entry].native, side))
            elif id(entry) in self._paths[side]:
                found.append((entry, side))
        if not found:
            raise MappingError(self._unknown(entry))
        return found

    def below(self, entry: Any) -> Iterator[Any]:
        """Yield the native modules at and below an entry."""
        return (module.native for module in self.modules_below(entry))

    def modules_below(self, entry: Any) -> Iterator[Module]:
        """Yield the modules at and below an entry."""
        for native, side in self.modules(entry):
            top = self._paths[side][id(native)]
            for path, module in self._modules[side].items():
                if not top or path == top or path.startswith(f"{top}."):
                    yield module

    def pair(self, a: Any, b: Any) -> tuple[str, str]:
        """Return the reference's and the candidate's path of a tied pair, whichever comes first."""
        ours, theirs = self.modules(a), self.modules(b)
        for first, second in ((ours, theirs), (theirs, ours)):
            left = next((native for native, side in first if side == 0), None)
            right = next((native for native, side in second if side == 1), None)
            if left is not None and right is not None:
                return self._paths[0][id(left)], self._paths[1][id(right)]
        msg = (
            f"LayerMap ties {_shown(a)} to {_shown(b)}, and both are modules of the same model.\n"
            "Hint: tie a module of the reference to a module of the candidate."
        )
        raise MappingError(msg)

    def _unknown(self, entry: Any) -> str:
        names = [type(model.native).__qualname__ for model in self._models]
        near: list[str] = []
        if isinstance(entry, str):
            near = difflib.get_close_matches(entry, dict.fromkeys(path for found in self._modules for path in found), 3)
        hint = "give a module of one of the two, or its path; of a remote model always the path."
        hint = f"did you mean {', '.join(map(repr, near))}?" if near else hint
        said = f"LayerMap names {_shown(entry)}, which is in neither model ({names[0]}, {names[1]})."
        return f"{said}\nHint: {hint}"


def _shown(entry: Any) -> str:
    return repr(entry) if isinstance(entry, str) else f"a {type(entry).__module__}.{type(entry).__qualname__}"
