"""Apply special transfers: functions that turn one module's parameters into another's, where no table can.

They come from plugins (``padiff_transfers()``) and from the user (`register_transfer`). What a function gives is
checked before anything is copied, and whether it only rearranges is found out by trying, not assumed.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from padiff.errors import PluginError, PluginWarning
from padiff.numerics import Array, read_only
from padiff.parameters._units import Native
from padiff.plugins import Row, SpecialTransfer, failure, transfers
from padiff.trace import Description, ModuleRecord, ParameterRecord

Places = NDArray[np.intp]
T = TypeVar("T")

_HOOK = "padiff_transfers()"
_MOST = 1 << 26
"""Elements of a module up to which it is tried whether a function only rearranges: a few copies in float64."""


class SpecialFailed(PluginError):
    """Say that a special transfer raised, or gave what does not fit."""

    def __init__(self, row: Row, why: str, hint: str = "") -> None:
        without = f"fix {row.distribution}, or uninstall it; without it the parameters are matched as usual."
        if row.given:
            without = "fix the function that was registered with padiff.register_transfer, or take it back."
        super().__init__(f"the special transfer {row.label} of {_HOOK} {why}.\nHint: {hint or without}")
        self.row = row


class Specials:
    """Hold the special transfers that concern two models; the user's own come first."""

    def __init__(self, reference: Description, candidate: Description) -> None:
        self._frameworks = reference.framework, candidate.framework
        classes = [sorted({m.module.class_name for m in about.modules.values()}) for about in (reference, candidate)]
        rows = [row for row in transfers() if all(self._fitting(row, side, classes[side]) for side in (0, 1))]
        self._rows = list(self._uncontested(rows, classes))

    def _fitting(self, row: Row, side: int, classes: Sequence[str]) -> list[str]:
        special: SpecialTransfer = row.item
        return [name for name in classes if special.fits(side, self._frameworks[side], name)]

    def _uncontested(self, rows: Sequence[Row], classes: Sequence[Sequence[str]]) -> Iterator[Row]:
        """Yield the transfers but for those of two plugins that concern the same two classes: neither is taken."""
        for row in rows:
            rivals = [other for other in rows if other is not row and self._overlap(row, other, classes)]
            if not rivals:
                yield row
            elif rows.index(row) < min(map(rows.index, rivals)):
                names = " and ".join(one.label for one in (row, *rivals))
                msg = (
                    f"{1 + len(rivals)} special transfers concern the same classes: {names}; none of them is used.\n"
                    f"Hint: pip uninstall all but one of {', '.join(one.distribution for one in (row, *rivals))}."
                )
                warnings.warn(msg, PluginWarning, stacklevel=2)

    def _overlap(self, row: Row, other: Row, classes: Sequence[Sequence[str]]) -> bool:
        if row.given or other.given:
            return False
        both = ([set(self._fitting(one, side, classes[side])) for one in (row, other)] for side in (0, 1))
        return all(ours & theirs for ours, theirs in both)

    def on(self, side: int) -> Callable[[ModuleRecord], Row | None]:
        """Return what tells the special transfer that a module of one side (0 the reference's) belongs to."""

        def special_of(module: ModuleRecord) -> Row | None:
            return next((row for row in self._rows if self._fitting(row, side, [module.class_name])), None)

        return special_of

    def retried(self, attempt: Callable[[], T]) -> T:
        """Return what an attempt gives; where a plugin's transfer fails in it, attempt again without."""
        while True:
            try:
                return attempt()
            except SpecialFailed as failed:
                self.drop(failed)

    def drop(self, failed: SpecialFailed) -> None:
        """Go on without a plugin's transfer that failed, with a warning; the user's own is an error."""
        if failed.row.given or failed.row not in self._rows:
            raise PluginError(str(failed)) from failed.__cause__
        self._rows.remove(failed.row)
        warnings.warn(str(failed), PluginWarning, stacklevel=2)


class Relation:
    """Tie two modules by a special transfer: which parameters it reads, which it gives, and what their values are.

    ``ours`` and ``theirs`` are all parameters and buffers of both modules by their names below them; ``value`` reads
    the reference's. Raises
    `SpecialFailed` where the function fails or gives what does not fit.
    """

    def __init__(
        self,
        row: Row,
        modules: tuple[ModuleRecord, ModuleRecord],
        ours: Mapping[str, ParameterRecord],
        theirs: Mapping[str, ParameterRecord],
        value: Native,
    ) -> None:
        self.row = row
        self.special: SpecialTransfer = row.item
        self._modules = modules
        self._ours = dict(ours)
        self._theirs = dict(theirs)
        self._read: set[str] = set(ours)
        self._differentiated: frozenset[str] | None = None
        self.names = tuple(theirs)
        """The names of the candidate's parameters that are copied."""
        if self.special.takes != "modules":
            self._read = set()
            self.names = tuple(self.values(value) or ())

    @property
    def read(self) -> frozenset[str]:
        """Return the names of the reference's parameters that the function looked at."""
        return frozenset(self._read)

    def values(self, native: Native) -> dict[str, Array] | None:
        """Return what the candidate's parameters must be, by name, in its own layout; None where only a copy tells."""
        if self.special.takes == "modules":
            return None
        return self._given_by(self.special.function, {name: native(p) for name, p in self._ours.items()})

    def gradients(self, native: Native) -> dict[str, Array]:
        """Return what the gradients of the candidate's parameters must be, of those that can be told."""
        arrays = {name: native(p) for name, p in self._ours.items() if not p.buffer}
        if all(array is None for array in arrays.values()) or not self.differentiated:
            return {}
        zeros = {name: np.zeros(p.shape, np.float32) for name, p in self._ours.items() if arrays.get(name) is None}
        try:
            found = self._given_by(self.special.gradients or self.special.function, {**arrays, **zeros})
        except SpecialFailed as failed:
            if self.row.given:
                raise PluginError(str(failed)) from failed.__cause__
            self._differentiated = frozenset()
            warnings.warn(f"{failed}", PluginWarning, stacklevel=2)
            return {}
        return {name: array for name, array in found.items() if name in self.differentiated}

    @property
    def differentiated(self) -> frozenset[str]:
        """Return the names of the candidate's parameters whose gradients can be told."""
        if self._differentiated is None:
            self._differentiated = frozenset(self._differentiable())
        return self._differentiated

    def _differentiable(self) -> set[str]:
        trained = {name for name in self.names if not self._theirs[name].buffer}
        if self.special.gradients is not None:
            return trained & self._given_gradients(self.special.gradients)
        return set() if self.special.takes == "modules" else trained & self._rearranged()

    def _given_gradients(self, function: Callable[..., Any]) -> set[str]:
        """Return the names whose gradients a function gives, as it does when all are zero; all where that fails."""
        zeros = {name: np.broadcast_to(np.float32(0), p.shape) for name, p in self._ours.items() if not p.buffer}
        try:
            return set(self._given_by(function, zeros))
        except SpecialFailed:
            return set(self.names)

    def copy(self, reference: Any, candidate: Any) -> None:
        """Let a function that takes the live modules write the candidate's parameters itself."""
        for native, side in ((reference, "reference"), (candidate, "candidate")):
            if native is None:
                why = f"takes the modules themselves, and the {side}'s is in another process, of which only arrays come"
                raise self._failed(why, "takes='arrays' works across processes too.")
        try:
            self.special.function(reference, candidate)
        except Exception as error:
            raise self._failed(failure(error)) from error

    def _rearranged(self) -> set[str]:
        """Return the names whose every element is one of the reference's, on which nothing else depends.

        Found out with numbers that are all different: what moves as it did with others does not depend on the values,
        and what stays as it is when these elements change does not depend on them.
        """
        total = sum(_size(parameter) for parameter in self._ours.values())
        if total > _MOST:
            return set()
        numbers = np.arange(1, total + 1)
        others = total + 1 + np.random.default_rng(0).permutation(total)
        try:
            first, second = self._tried(numbers), self._tried(others)
            places = {name: _places(array, second.get(name), others) for name, array in first.items()}
            moved = {name: index for name, index in places.items() if index is not None}
            times = np.bincount(np.concatenate([[], *moved.values()]).astype(np.intp), minlength=total)
            single = {name: index for name, index in moved.items() if (times[index] == 1).all()}
            if self._alone(single, first, numbers):
                return set(single)
            return {name for name, index in single.items() if self._alone({name: index}, first, numbers)}
        except SpecialFailed:
            return set()

    def _alone(self, places: Mapping[str, Places], first: Mapping[str, Array], numbers: Places) -> bool:
        """Return whether nothing but the named depends on the elements that they take."""
        rest = first.keys() - places.keys()
        if not rest:
            return True
        changed = numbers.copy()
        for index in places.values():
            changed[index] += 2 * len(numbers) + 1
        again = self._tried(changed)
        return all(np.array_equal(np.asarray(first[name]), np.asarray(again.get(name))) for name in rest)

    def _tried(self, numbers: Places) -> dict[str, Array]:
        """Return what the function makes of parameters that hold these numbers."""
        filled: dict[str, Array | None] = {}
        start = 0
        for name, parameter in self._ours.items():
            size = _size(parameter)
            filled[name] = numbers[start : start + size].astype(np.float64).reshape(parameter.shape)
            start += size
        return self._given_by(self.special.function, filled)

    def _given_by(self, function: Callable[..., Any], arrays: Mapping[str, Array | None]) -> dict[str, Array]:
        watched = _Watched({name: read_only(array) for name, array in arrays.items() if array is not None})
        try:
            given = function(watched)
        except Exception as error:
            raise self._failed(failure(error)) from error
        self._read |= watched.read
        if not isinstance(given, Mapping):
            why = f"gave a {type(given).__qualname__}; expected a dict of arrays by name"
            raise self._failed(why)
        return {str(name): self._checked(name, value) for name, value in given.items()}

    def _checked(self, name: Any, value: Any) -> Array:
        parameter = self._theirs.get(name)
        if parameter is None:
            known = ", ".join(map(repr, self._theirs))
            why = f"gave {name!r}, and the candidate's module has {known}"
            raise self._failed(why)
        array = np.asarray(value)
        if array.shape != parameter.shape or array.dtype.kind not in "biufcV":
            seen = f"{array.dtype.name}{list(array.shape)}"
            why = f"gave {seen} for {name!r}; expected numbers of shape {list(parameter.shape)}"
            raise self._failed(why)
        return array

    def _failed(self, why: str, hint: str = "") -> SpecialFailed:
        ours, theirs = (f"{m.path or 'the root'!r} ({m.class_name})" for m in self._modules)
        return SpecialFailed(self.row, f"{why}, for the reference's {ours} and the candidate's {theirs}", hint)


class _Watched(Mapping[str, Array]):
    """Hand out arrays, and remember which were asked for."""

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        self._arrays = arrays
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> Array:
        array = self._arrays[name]
        self.read.add(name)
        return array

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __repr__(self) -> str:
        return f"{{{', '.join(f'{name!r}: {a.dtype.name}{list(a.shape)}' for name, a in self._arrays.items())}}}"


def _size(parameter: ParameterRecord) -> int:
    return math.prod(parameter.shape)


def _places(array: Array, again: Array | None, others: Places) -> Places | None:
    """Return where each element was taken from, given what was made of 1, 2, ... and of other numbers, or None."""
    found = np.asarray(array, np.float64).ravel()
    if again is None or not ((found >= 1) & (found <= len(others)) & (found == np.floor(found))).all():
        return None
    index = found.astype(np.intp) - 1
    return index if np.array_equal(np.asarray(again, np.float64).ravel(), others[index]) else None
