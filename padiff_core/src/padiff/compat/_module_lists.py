"""Know what of a model its user wants recorded: black lists, white lists, layer maps, and whether operations."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

from padiff.adapter import Model
from padiff.errors import MappingError, check_one_of

_MODES = ("self", "sublayers", "all")


class ModuleLists:
    """A model's lists. Once anything is on the white list, the black list has no say; the root always counts."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.layer_map: list[str] = []
        """Paths of the modules that the user mapped, in the order of the user's list."""
        self._lists: dict[str, dict[str, set[str]]] = {
            name: {"self": set(), "sublayers": set()} for name in ("black", "white")
        }

    def put(self, name: str, modules: Any, mode: str) -> None:
        """Put modules on the ``black`` or the ``white`` list; see `paths_of` for what is refused."""
        check_one_of("mode", mode, _MODES)
        paths = self.paths_of(modules)
        for which in ("self", "sublayers") if mode == "all" else (mode,):
            self._lists[name][which].update(paths)

    def set_layer_map(self, modules: Any) -> None:
        """Map modules, in order; what is below them is put on the black list."""
        self.layer_map = self.paths_of(modules)
        self.put("black", modules, "sublayers")

    def of_class(self, cls: type | tuple[type, ...]) -> list[Any]:
        """Return the native modules of a class."""
        return [module.native for module in self.model.modules().values() if isinstance(module.native, cls)]

    def recorded(self) -> frozenset[str]:
        """Return the paths of the modules that are recorded."""
        paths, white = list(self.model.modules()), self._on("white")
        return frozenset({"", *(white if any(self._lists["white"].values()) else set(paths) - self._on("black"))})

    def _on(self, name: str) -> set[str]:
        """Return the paths of the modules that are on a list, or below one that is there with its sublayers."""
        held = self._lists[name]
        return held["self"] | set(_below(self.model.modules(), held["sublayers"]))

    def unrecorded(self) -> list[str]:
        """Return the paths of the modules that are not recorded."""
        recorded = self.recorded()
        return [path for path in self.model.modules() if path not in recorded]

    def paths_of(self, modules: Any) -> list[str]:
        """Return the paths of modules, given as objects or paths, one or several.

        Raises `MappingError` for what is not in the model.
        """
        known = self.model.modules()
        by_id = {id(module.native): path for path, module in known.items()}
        several = list(modules) if isinstance(modules, list | tuple | set | frozenset) else [modules]
        found = []
        for entry in several:
            path = entry if isinstance(entry, str) and entry in known else by_id.get(id(entry))
            if path is None:
                shown = repr(entry) if isinstance(entry, str) else f"a {type(entry).__qualname__}"
                name = type(self.model.native).__qualname__
                msg = f"the list names {shown}, which is not in {name}.\nHint: give modules of it, or their paths."
                raise MappingError(msg)
            found.append(path)
        return found


def _below(paths: Iterable[str], tops: Iterable[str]) -> Iterator[str]:
    prefixes = tuple(f"{top}." if top else "" for top in tops)
    return (path for path in paths if path and path.startswith(prefixes)) if prefixes else iter(())


def api_check() -> bool:
    """Return whether operations count too: ``PADIFF_API_CHECK=ON``, read whenever a comparison begins."""
    return os.environ.get("PADIFF_API_CHECK", "").strip().upper() in ("ON", "1", "TRUE")
