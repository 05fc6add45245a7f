"""Take what a user says about which modules belong together, or are none of padiff's business."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

from padiff.alignment._mapping_file import read_mapping
from padiff.alignment._mapping_yaml import resolved_file
from padiff.alignment._resolved import Resolved
from padiff.errors import MappingError, did_you_mean
from padiff.paths import is_at
from padiff.trace import Description, ModuleRecord


class LayerMap:
    """Say which modules correspond, and which to ignore.

    ``map`` matches modules of the two models, in either order: ``{layer.attn: module.attn}``. A matched pair is
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


class Tree(Protocol):
    """Whoever knows a model's modules: a side."""

    @property
    def about(self) -> Description:
        """Return the model as plain data."""

    def find(self, native: Any) -> str | None:
        """Return the path of a live object that is one of the model's modules."""


def resolve(
    mapping: LayerMap | Mapping[Any, Any] | str | os.PathLike[str] | None, reference: Tree, candidate: Tree
) -> Resolved:
    """Find the modules that a mapping, or a mapping file, names.

    Raises `MappingError` for an entry that is in neither model, that matches two modules of one model, or that
    matches a module twice.
    """
    if mapping is None:
        return Resolved()
    if isinstance(mapping, str) and not (mapping.endswith((".yaml", ".yml")) or os.path.exists(mapping)):
        msg = (
            f"mapping is str {mapping!r}, which is no file; expected a padiff.LayerMap, a dict of modules, or the "
            "name of a mapping file.\nHint: mapping='mapping.yaml'; see docs/mapping.md."
        )
        raise MappingError(msg)
    if isinstance(mapping, str | os.PathLike):
        return resolved_file(read_mapping(mapping), reference.about, candidate.about)
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
    ignored: set[tuple[int, str]] = set()
    for entry in layer_map.ignored:
        ignored.update(finder.places(entry))
    for entry in layer_map.ignored_with_children:
        ignored.update((side, module.path) for side, module in finder.modules_below(entry))
    for entry, cls in layer_map.ignored_classes:
        if not isinstance(cls, type | str):
            msg = (
                f"LayerMap ignores the class {_shown(cls)}, which is no class.\n"
                "Hint: give the class itself: layer_map.ignore_class(module, nn.Linear)"
            )
            raise MappingError(msg)
        found = [(side, module.path) for side, module in finder.modules_below(entry) if _is_a(module, cls)]
        if not found:
            name = cls if isinstance(cls, str) else cls.__qualname__
            msg = (
                f"LayerMap ignores the class {name}, and no module of it is at or below "
                f"{_shown(entry)}.\n"
                "Hint: give the class of the modules themselves, and a module that holds some."
            )
            raise MappingError(msg)
        ignored.update(found)
    paths = [frozenset(path for at, path in ignored if at == side) for side in (0, 1)]
    return Resolved(pairs, (paths[0], paths[1]))


def _is_a(module: ModuleRecord, cls: type | str) -> bool:
    """Return whether a module is of a class, or of a class of that name, qualified or bare."""
    name = cls if isinstance(cls, str) else f"{cls.__module__}.{cls.__qualname__}"
    return any(one == name or (isinstance(cls, str) and one.endswith(f".{name}")) for one in module.classes)


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
        f"LayerMap matches the {side}'s {path!r} twice: with {first!r} and with {second!r}; expected was one.\n"
        "Hint: leave one of the two entries out, or match the modules that hold them all."
    )


def _from_dict(mapping: Any) -> LayerMap:
    if not isinstance(mapping, Mapping):
        msg = (
            f"mapping is {type(mapping).__qualname__}; expected a padiff.LayerMap, a dict of modules, or the name of a "
            "file.\n"
            "Hint: mapping={'path.in.the.reference': 'path.in.the.candidate'}"
        )
        raise MappingError(msg)
    return LayerMap(mapping)


class _Finder:
    """Look modules up in two models, by object or by path."""

    def __init__(self, reference: Tree, candidate: Tree) -> None:
        self._trees = reference, candidate
        self._modules = [{path: one.module for path, one in tree.about.modules.items()} for tree in self._trees]

    def places(self, entry: Any) -> list[tuple[int, str]]:
        """Return the modules that an entry names: the side each is on (0 the reference), and its path."""
        found = []
        for side, tree in enumerate(self._trees):
            path = tree.find(entry)
            if isinstance(entry, str):
                path = entry if entry in self._modules[side] else None
            if path is not None:
                found.append((side, path))
        if not found:
            raise MappingError(self._unknown(entry))
        return found

    def modules_below(self, entry: Any) -> Iterator[tuple[int, ModuleRecord]]:
        """Yield the modules at and below an entry, each with its side."""
        for side, top in self.places(entry):
            for path, module in self._modules[side].items():
                if is_at(path, top):
                    yield side, module

    def pair(self, a: Any, b: Any) -> tuple[str, str]:
        """Return the reference's and the candidate's path of a mapped pair, whichever comes first."""
        ours, theirs = self.places(a), self.places(b)
        for first, second in ((ours, theirs), (theirs, ours)):
            left = next((path for side, path in first if side == 0), None)
            right = next((path for side, path in second if side == 1), None)
            if left is not None and right is not None:
                return left, right
        msg = (
            f"LayerMap matches {_shown(a)} with {_shown(b)}, and both are modules of the same model.\n"
            "Hint: map a module of the reference to a module of the candidate."
        )
        raise MappingError(msg)

    def _unknown(self, entry: Any) -> str:
        names = [modules[""].class_name.rpartition(".")[2] for modules in self._modules]
        paths = [path for found in self._modules for path in found]
        near = did_you_mean(entry, paths, most=3) if isinstance(entry, str) else ""
        hint = near or "give a module of one of the two, or its path; of a remote model always the path."
        said = f"LayerMap names {_shown(entry)}, which is in neither model ({names[0]}, {names[1]})."
        return f"{said}\nHint: {hint}"


def _shown(entry: Any) -> str:
    return repr(entry) if isinstance(entry, str) else f"a {type(entry).__module__}.{type(entry).__qualname__}"
