"""Measure the values of two recorded steps: each pair once, ahead of the judgement, on whatever cores there are."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from typing import Any

import attrs
import numpy as np

from padiff.alignment import Alignment
from padiff.errors import PadiffError, WorkerError
from padiff.forcing import RecordedSide, Spot
from padiff.judging._recorded._cache import Measurements
from padiff.judging._recorded._computed_in import Types, types_of
from padiff.judging._recorded._parameter_values import GRADIENTS, Kept, When, both_of, kept_by, with_nothing
from padiff.judging._recorded._value_pairs import ValuePair, measured
from padiff.judging._sizes import Held, Size, held, magnitude, projected, size_of
from padiff.judging._tolerance import Rule
from padiff.numerics import Array, is_suspect, numpy_dtype
from padiff.parameters import Correspondence, Link
from padiff.parameters import Held as HeldParameter
from padiff.trace import Key, ParameterRecord, Trace

_BATCH = 32 << 20
"""Bytes that a worker reads for one request."""
_MOST = 256
"""Pairs of values in one request, at most."""
_WORTH = 64 << 20
"""Bytes from which on a step is worth a thread for each core."""

Traces = tuple[Trace, Trace]
Keyed = tuple[tuple[Any, ...], ValuePair]


@attrs.frozen
class Measuring:
    """With what values are measured."""

    rule: Rule | None
    tolerance: Mapping[str, Any] | None
    executor: Executor
    known: Measurements | None
    """What was measured before, and is kept."""


@contextmanager
def measuring(
    rule: Rule | None,
    tolerance: Mapping[str, Any] | None,
    executor: Executor | None,
    cache: str | os.PathLike[str] | None,
) -> Iterator[Measuring]:
    """Give what measures with an executor of the user's, or else with a thread for each core."""
    known = None if cache is None else Measurements(cache, tolerance)
    own = ThreadPoolExecutor(_cores(), "padiff-compare")  # whose threads begin when something is asked of them
    try:
        yield Measuring(rule, tolerance, executor or own, known)
    finally:
        own.shutdown(wait=True, cancel_futures=True)
        if known is not None:
            known.close()


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


ByPath = dict[str | None, dict[str, Any]]


class Meter:
    """What knows how far apart the values of one step are."""

    def __init__(self, sides: tuple[RecordedSide, RecordedSide], by: Measuring) -> None:
        self.sides, self.traces, self._by = sides, (sides[0].trace, sides[1].trace), by
        self.models = sides[0].about, sides[1].about
        self._sizes: dict[tuple[Any, ...], Size | None] = {}
        self._kept: dict[When, tuple[Kept, Kept]] = {}
        self._stepped: tuple[ByPath, ByPath] | None = None
        self.cleared: tuple[set[str], set[str]] = set(), set()
        """Of each side, the parameters whose gradients were cleared in front of the last pass: see `cleared_alike`."""
        self.computing: Mapping[Key, Types] = {}
        """In which types calls compute that are narrower than what they give: see `computed_in`."""
        self.parts: dict[tuple[int, int], Size] = {}
        """Tokens of values that are compared in part -> how far apart these parts are."""

    def size(self, ours: int | None, theirs: int | None, *, awaited: bool = False) -> Size | None:
        """Return how far apart the values of two keys are; None where one was not kept, and is not ``awaited`` either.

        A gradient that is awaited and does not come is zeros.
        """
        key = ours, theirs, awaited
        if key not in self._sizes:
            values = held(self.traces[0], ours), held(self.traces[1], theirs)
            values = with_nothing(*values) if awaited else values
            self._sizes[key] = size_of(*values, self._by.rule)
        return self._sizes[key]

    def settings(self, link: Link) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
        """Return what both sides' optimizers step a parameter with; None where that is not known."""
        if self._stepped is None:
            self._stepped = self.traces[0].settings_by_path(), self.traces[1].settings_by_path()
        ours, theirs = self._stepped
        paths = link.reference.parameter.path, link.candidate.parameter.path
        return ours.get(paths[0], ours.get(None)), theirs.get(paths[1], theirs.get(None))

    def kept(self, when: When) -> tuple[Kept, Kept]:
        """Return where both sides keep what is asked of their parameters."""
        if when not in self._kept:
            self._kept[when] = kept_by(self.sides[0], when), kept_by(self.sides[1], when)
        return self._kept[when]

    def array(self, parameter: ParameterRecord, when: When, *, ours: bool) -> Array | None:
        """Return what one side holds of a parameter; None where its numbers were not kept."""
        kept = self.kept(when)[not ours]
        found = held(*kept[parameter.path]) if parameter.path in kept else None
        return found if isinstance(found, np.ndarray) else None

    def knows(self, link: Link) -> bool:
        """Return whether the values of a link before the step are known on both sides, or what they project onto."""
        return all(map(_is_projected, self.kept("before"), (link.references, [link.candidate])))

    def held(self, link: Link, when: When) -> tuple[Any, Any]:
        """Return what both sides hold of a link: see `both_of`.

        Of gradients that had arrived without those that were ``cleared``.
        """
        if when in ("arrived", "used") and len({trace.stepped_at is None for trace in self.traces}) > 1:
            when = "gradient"  # one side steps by hand: nobody knows what had arrived there by then
        if when == "arrived" and any(self.clears(link)):
            when = "kept"
        return both_of(link, self.kept(when), gradient=when in GRADIENTS)

    def clears(self, link: Link) -> list[bool]:
        """Return, of each side, whether gradients of a parameter were ``cleared``."""
        paths = [one.parameter.path for one in link.references], [link.candidate.parameter.path]
        return [any(path in own for path in held) for held, own in zip(paths, self.cleared, strict=True)]

    def types(self, spot: Spot) -> Types:
        """Return in which types a value of matched calls was made on both sides."""
        return types_of(spot.reference, spot.candidate, spot.owner, self.computing)

    def of_spot(self, spot: Spot) -> tuple[Held, Held]:
        """Return what both sides hold of a value of matched calls."""
        ours, theirs = self.traces
        values = ours.values.get(spot.reference.token), theirs.values.get(spot.candidate.token)
        return held(ours, values[0]), held(theirs, values[1])

    def of_link(self, link: Link, when: When) -> Size | None:
        """Return how far apart what both sides hold of a link is."""
        if (link, when) not in self._sizes:
            self._sizes[link, when] = size_of(*self.held(link, when), self._by.rule)
        return self._sizes[link, when]

    def scale(self, link: Link, when: When) -> float:
        """Return the root mean square of what the reference holds of a link."""
        size = self.of_link(link, when)
        if size is not None and math.isfinite(size.difference.scale):
            return size.difference.scale
        return magnitude(self.held(link, when)[0])

    def before(self, link: Link) -> Size | None:
        """Return how far apart a parameter is before the step, measured now if it was not yet; None where unknown."""
        key = link, "before"
        if key not in self._sizes:
            both = self._pair_of(link, "before")
            if both is None:
                return None
            known = self._by.known
            size = None if known is None else known.get(both)
            self._keep([(key, both)], [both.measured(self._by.rule) if size is None else size])
        return self._sizes[key]

    def begin(self, other: Meter) -> None:
        """Know of the values before the step what another one measured."""
        self._sizes |= {key: size for key, size in other._sizes.items() if key[1:] == ("before",)}

    def take_over(self, earlier: Meter, known: Correspondence) -> None:
        """Know of the values before a step what was measured of them behind the one before."""
        before = self.kept("before")
        for _, link in known.links:
            ours = [before[0].get(held.parameter.path) for held in link.references]
            theirs = before[1].get(link.candidate.parameter.path)
            same = all(one is not None and one[0] is earlier.traces[0] for one in ours)
            if same and theirs is not None and theirs[0] is earlier.traces[1] and (link, "updated") in earlier._sizes:
                self._sizes[link, "before"] = earlier._sizes[link, "updated"]

    def alike(self, link: Link) -> bool:
        """Return whether it is known that both sides start from the same values of a link, in one type."""
        size = self._sizes.get((link, "before"))
        dtypes = link.reference.parameter.dtype, link.candidate.parameter.dtype
        if size is None or dtypes[0] != dtypes[1]:
            return False
        return not is_suspect(size.difference, numpy_dtype(dtypes[0])) if size.close is None else size.close

    def value_pairs(self, alignment: Alignment) -> list[Keyed]:
        """Return what matched calls took and gave, and its gradients, as pairs of values to measure."""
        pairs: dict[tuple[int, int], None] = {}
        ours, theirs = self.traces
        for pair in alignment.pairs:
            for one, other in (*pair.taken, *pair.made):
                for named in ((ours.values, theirs.values), (ours.gradients, theirs.gradients)):
                    keys = named[0].get(one.token, -1), named[1].get(other.token, -1)
                    if min(keys) >= 0:
                        pairs[keys] = None
        found: list[Keyed] = []
        for keys in pairs:
            lent = ours.store.lent(keys[0]), theirs.store.lent(keys[1])
            if lent[0] is not None and lent[1] is not None:
                found.append(((*keys, False), ValuePair({"": lent[0]}, lent[1])))
        return found

    def parameter_pairs(self, known: Correspondence, when: When) -> list[Keyed]:
        """Return what both sides hold of parameters as pairs of values to measure."""
        found = (((link, when), self._pair_of(link, when)) for _, link in known.links)
        return [(key, both) for key, both in found if both is not None]

    def _pair_of(self, link: Link, when: When) -> ValuePair | None:
        """Return both values of a link; None where a user's function stands for it, or a value was not kept."""
        if type(link) is not Link or link.buffer is not (when == "buffer"):
            return None
        kept = self.kept(when)
        ours = {held.parameter.path: _lent(kept[0], held.parameter.path) for held in link.references}
        theirs = _lent(kept[1], link.candidate.parameter.path)
        if theirs is None or any(one is None for one in ours.values()):
            return None
        return ValuePair(ours, theirs, link, when in GRADIENTS)

    def ahead(self, pairs: Iterable[Keyed]) -> None:
        """Measure what is not known yet."""
        unknown = []
        known = self._by.known
        for key, both in pairs:
            if key in self._sizes:
                continue
            found = None if known is None else known.get(both)
            if found is None:
                unknown.append((key, both))
            else:
                self._sizes[key] = found
        threads = isinstance(self._by.executor, ThreadPoolExecutor)
        if threads and known is None and sum(both.weight for _, both in unknown) < _WORTH:
            return  # each when it is asked for
        self._spread(list(_batches(unknown)), self._by.executor)

    def _spread(self, batches: Sequence[Sequence[Keyed]], executor: Executor) -> None:
        """Let an executor's workers measure, and keep what each gives as soon as it comes."""
        waiting: dict[Future[list[Size | None]], Sequence[Keyed]] = {}
        done, trouble = 0, None
        try:
            for batch in batches:
                waiting[executor.submit(measured, [both for _, both in batch], self._by.tolerance)] = batch
        except Exception as error:
            trouble = error
        try:
            for future in as_completed(waiting):
                try:
                    sizes = future.result()
                except (Exception, CancelledError) as error:
                    trouble = trouble or error
                    for other in waiting:
                        other.cancel()  # what is measured already is kept all the same
                else:
                    done += 1
                    self._keep(waiting[future], sizes)
        finally:
            for future in waiting:
                future.cancel()
        if isinstance(trouble, PadiffError):
            raise trouble
        if trouble is not None:
            raise self._lost(trouble, done, len(batches)) from trouble

    def _keep(self, batch: Sequence[Keyed], sizes: Sequence[Size | None]) -> None:
        for (key, both), size in zip(batch, sizes, strict=True):
            self._sizes[key] = size
            if self._by.known is not None:
                self._by.known.put(both, size)

    def _lost(self, error: BaseException, done: int, count: int) -> WorkerError:
        known = self._by.known
        said = f"{type(error).__name__}{f': {error}' if str(error) else ''}"
        msg = f"the executor answered {done} of {count} requests, and lost the others ({said}).\n"
        msg += "Hint: compare again, with "
        if known is None:
            return WorkerError(f"{msg}cache=FILE, which keeps what is measured.")
        return WorkerError(f"{msg}the same cache={known.where!r}: what was measured is in it.")


def _is_projected(kept: Kept, parameters: Iterable[HeldParameter]) -> bool:
    known = [kept.get(one.parameter.path) for one in parameters]
    return all(one is not None and (one[1] >= 0 or projected(held(*one)) is not None) for one in known)


def _lent(kept: Kept, path: str) -> Any:
    trace, key = kept.get(path, (None, -1))
    return None if trace is None or key < 0 else trace.store.lent(key)


def _batches(pairs: Sequence[Keyed]) -> Iterator[list[Keyed]]:
    batch: list[Keyed] = []
    size = 0
    for one in pairs:
        batch.append(one)
        size += one[1].weight
        if size >= _BATCH or len(batch) >= _MOST:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
