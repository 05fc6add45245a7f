"""Measure how far apart two values of two runs are, in whatever process: a pair of values is plain data."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from padiff._version import __version__
from padiff.judging._sizes import Size, size_of
from padiff.judging._tolerance import Rule, rule_of
from padiff.numerics import Array, Seen
from padiff.parameters import Link, read_of
from padiff.trace import InShard, Lent, ParameterRecord, Proof


@attrs.frozen(eq=False)
class ValuePair:
    """Two values of which somebody wants to know how far apart they are: plain data, without the values."""

    ours: Mapping[str, Lent]
    """What reads the reference's; of a link between parameters by the paths of those that the reference has."""
    theirs: Lent
    link: Link | None = None
    gradient: bool = False

    @property
    def weight(self) -> int:
        """Return how many bytes are to be read."""
        return sum(one.bytes for one in (*self.ours.values(), self.theirs))

    @property
    def name(self) -> str | None:
        """Return what nothing else is called, in any comparison; None where the runs have no names."""
        names = [(path, one.name) for path, one in self.ours.items()] + [("", self.theirs.name)]
        if not all(name for _, name in names):
            return None
        text = repr((__version__, names, self.link, self.gradient))
        return hashlib.blake2b(text.encode(), digest_size=20).hexdigest()

    def measured(self, rule: Rule | None) -> Size | None:
        """Read both values, and measure; None where a link has nothing to be compared with.

        Raises `InputError` where what was read is not what was written: checksums are tried while values are measured.
        """
        read = {path: _unproven(one) for path, one in self.ours.items()}
        values, (theirs, proof) = {path: array for path, (array, _) in read.items()}, _unproven(self.theirs)
        proofs = [*(one for _, one in read.values()), proof]
        try:
            both = self._both(values, theirs)
            if both is None:
                return None
            whole = len(values) == 1 and all(map(_is_all_of, both, (*values.values(), theirs)))
            return size_of(*both, rule, _seeing(*proofs) if whole and any(proofs) else None)
        finally:  # what damaged bytes may have led to is none of the caller's business
            for one in filter(None, proofs):
                one.finish()

    def _both(self, values: Mapping[str, Array], theirs: Array) -> tuple[Array, Array] | None:
        """Return both values in one layout."""
        if self.link is None:
            return next(iter(values.values())), theirs

        def native(parameter: ParameterRecord) -> Array | None:
            return values.get(parameter.path)

        return read_of(self.link, native, lambda _: theirs, gradient=self.gradient)


def _unproven(one: Lent) -> tuple[Array, Proof | None]:
    return one.unproven() if isinstance(one, InShard) else (one.read(), None)


def _is_all_of(value: Array, read: Array) -> bool:
    """Return whether a value is all of what was read, in the order in which it lies."""
    return value.nbytes == read.nbytes and value.flags.forc and value.ctypes.data == read.ctypes.data


def _seeing(ours: Proof | None, theirs: Proof | None) -> Seen:
    """Return what adds to the checksums of two values what has just been seen of them."""

    def seen(stop: int, same: bool) -> None:
        if ours is not None:
            ours.add(stop)
        if theirs is not None and ours is not None and same:
            theirs.follow(ours)
        elif theirs is not None:
            theirs.add(stop)

    return seen


def measured(pairs: Sequence[ValuePair], tolerance: Mapping[str, Any] | None) -> list[Size | None]:
    """Measure pairs of values, one after the other: what a worker does."""
    rule = rule_of(tolerance)
    return [both.measured(rule) for both in pairs]
