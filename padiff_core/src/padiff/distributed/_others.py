"""Find, for a value of a job, what the run that it is compared with holds at its place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import attrs
import numpy as np

from padiff.alignment import Alignment, ModulePair, Resolved, align, partners, same_sort
from padiff.distributed._expected import Expected, Shape, expected_sketch
from padiff.numerics import Array
from padiff.parameters import Correspondence, Link, PaddedRows, canonical, named_alike, pair_parameters, units_of
from padiff.report import Place
from padiff.trace import Call, Description, Key, Leaf, ParameterRecord, Trace, flow_of

if TYPE_CHECKING:
    from padiff.distributed._merged_step import MergedStep

Spot = tuple[Key, str, int]
"""A call, ``input`` or ``output``, and which of its tensors."""
Ends = tuple[Description, Trace]
"""A model as it is over all ranks, and one step of its run, as far as either is known by itself."""


T = TypeVar("T")


@attrs.frozen(eq=False)
class RunMatch:
    """What of one run belongs to what of another, where names need not say it."""

    places: tuple[Mapping[Spot, Spot], Mapping[Spot, Spot]]
    """Of either run: its places -> the other's."""
    modules: tuple[Mapping[str, str], Mapping[str, str]]
    links: tuple[Mapping[str, Sequence[Link]], Mapping[str, Sequence[Link]]]
    """Of either run: path of a parameter -> what ties it to parameters of the other."""
    matched: Sequence[ModulePair] = ()
    """The modules whose parameters were matched."""

    def further(self, ours: Trace, theirs: Trace, mapped: Resolved) -> RunMatch | None:
        """Return what more belongs together, now that more is put together of a job; None where nothing does.

        Calls without parameters are matched by the shapes of what they give.
        """
        calls = align(ours, theirs, self.matched, mapped)
        places = {mine: yours for mine, yours in _places(calls) if mine not in self.places[0]}
        places = {mine: yours for mine, yours in places.items() if yours not in self.places[1]}
        if not places:
            return None
        modules = {**{pair.reference.path: pair.candidate.path for pair in calls.pairs}, **self.modules[0]}
        return attrs.evolve(self, places=_both_ways({**self.places[0], **places}), modules=_both_ways(modules))


@attrs.frozen(eq=False)
class Other:
    """One step of the run that a job is compared with."""

    trace: Trace
    match: RunMatch | None = None
    """None where both runs know everything by the same name."""
    index: int = 0
    """Which of both runs the job is, in the ties."""
    known: MergedStep | None = None
    """The step of a job, where the other run is one."""
    padding: PaddedRows | None = None
    """What the job pads; the other run shows no padding."""
    calls: Mapping[Key, Call] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        """Index the calls."""
        object.__setattr__(self, "calls", {call.key: call for call in self.trace.calls})

    def at(self, trace: Trace) -> Other:
        """Return another step of the same run."""
        return Other(trace, self.match, self.index, None, self.padding)

    def place(self, place: Spot) -> Spot | None:
        """Return the other run's place for one of the job's."""
        return place if self.match is None else self.match.places[self.index].get(place)

    def leaf(self, place: Spot) -> Leaf | None:
        """Return the other run's tensor at a place of the job."""
        other = self.place(place)
        call = None if other is None else self.calls.get(other[0])
        if other is None or call is None:
            return None
        leaves, index = call.leaves(other[1]), other[2]
        return leaves[index] if index < len(leaves) else None

    def reported(self, path: str, call: int | None) -> Place | None:
        """Return the place in a report of what the other run has for a module of the job, or a call of it."""
        other = path if self.match is None else self.match.modules[self.index].get(path)
        found = [one for one in self.trace.calls if one.path == other and call in (None, one.ordinal)]
        if other is None or not (found or call is None):
            return None
        return Place(other, found[0].module.class_name if found else "", call=call or 0)

    def mine(self, path: str) -> str | None:
        """Return the path in the job of one of the candidate's parameters."""
        if self.match is None or self.index == 1:
            return path
        links = self.match.links[1].get(path, ())
        return links[0].reference.parameter.path if links else None

    def value(self, place: Spot, kind: str = "value") -> Expected | None:
        """Return what the other run holds at a place of the job: its ``value``, or its ``gradient``."""
        leaf = self.leaf(place)
        if leaf is None:
            return None
        key = getattr(self.trace, f"{kind}s").get(leaf.token)
        if key is not None and key < 0:
            return expected_sketch(self.trace.summaries.get(key))
        known = () if key is None else ((leaf.shape, partial(getattr(self.trace, kind), leaf)),)
        found = (*known, *(() if self.known is None else self.known.possible(leaf.token, kind)))
        return Expected(found, turned=self.match is not None, padded=self._padded) if found else None

    @property
    def _padded(self) -> tuple[int, int] | None:
        return None if self.padding is None else (self.padding.count, self.padding.real)

    def shape(self, path: str) -> Shape | None:
        """Return the shape of a parameter of the job in the other run, where it has it by the same name."""
        padded = self.padding is not None and path in self.padding.parameters
        record = self.trace.parameters.get(path) if self.match is None and not padded else None
        return None if record is None else record.shape

    def parameter(self, name: str, path: str, shape: Shape | None) -> Expected | None:
        """Return what the other run holds of a parameter, as it would lie in the job: ``weights`` and the like."""
        held: Mapping[str, int] = getattr(self.trace, name)
        if self.match is None:
            record, key = self.trace.parameters.get(path), held.get(path)
            if key is not None and key < 0:
                return expected_sketch(self.trace.summaries.get(key))
            if key is None or record is None:
                return None
            # Names do not say how a weight lies that a class of somebody's own holds: ``[in, out]``, or the other way.
            return Expected(((record.shape, partial(self.trace.array, key)),), turned=True, padded=self._padded)
        links = self.match.links[self.index].get(path, ())
        if shape is not None and self.padding is not None and path in self.padding.parameters:
            shape = self.padding.parameters[path].shape(shape)
        alone = len(links) == 1 or (len(links) > 1 and all(link.packed_alike for link in links))
        if alone and (sketched := self._sketched(held, links[0])) is not None:
            return sketched
        ready = all(self._read(held, link) for link in links)
        if not links or shape is None or not ready:
            return None
        return Expected(((shape, partial(self._assembled, held, links, shape)),), padded=self._padded)

    def _sketched(self, held: Mapping[str, int], link: Link) -> Expected | None:
        other = link.candidate if self.index == 0 else link.reference
        if (link.packed and not link.packed_alike) or not link.single or not link.alike:
            return None
        return expected_sketch(self.trace.summaries.get(held.get(other.parameter.path, 0)))

    def _read(self, held: Mapping[str, int], link: Link) -> bool:
        other = link.candidate if self.index == 0 else link.reference
        return link.single and held.get(other.parameter.path, -1) >= 0

    def _assembled(self, held: Mapping[str, int], links: Sequence[Link], shape: Shape) -> Array:
        """Return a parameter as the other run's make it; what none of them tells is zero."""

        def read(parameter: ParameterRecord) -> Array:
            return self.trace.array(held[parameter.path])

        found: Array = np.zeros(shape, read((links[0].candidate, links[0].reference)[self.index].parameter).dtype)
        for link in links:
            found = _written(found, link, read) if self.index else _read_back(found, link, read)
        return found


def _written(found: Array, link: Link, read: Callable[[ParameterRecord], Array]) -> Array:
    """Return a parameter of the candidate with what a link makes of the reference's."""
    values = link.expected(read)
    assert values is not None
    return np.array(link.written(values, lambda: found), order="C")


def _read_back(found: Array, link: Link, read: Callable[[ParameterRecord], Array]) -> Array:
    """Return a parameter of the reference with what the candidate's holds of it.

    Numbered elements, which are led through the link, say which element of the candidate each becomes.
    """
    numbers = link.expected(lambda _: np.arange(found.size).reshape(found.shape))
    assert numbers is not None
    found.reshape(-1)[numbers] = canonical(link.candidate, read(link.candidate.parameter))
    return found


def match_runs(ends: tuple[Ends, Ends], mapped: Resolved) -> RunMatch | None:
    """Return what of two runs belongs together; None where both know all their modules by the same names."""
    (ours, trace), (theirs, other) = ends
    if ours.modules.keys() == theirs.modules.keys() and not mapped:
        return None
    units = units_of(ours), units_of(theirs)
    known: Correspondence | None = named_alike(*units, mapped)
    known = known or pair_parameters(*units, (flow_of(trace), flow_of(other)), mapped)
    calls = align(trace, other, [match.modules for match in known.matches], mapped)
    modules = {pair.reference.path: pair.candidate.path for pair in calls.pairs}
    matched = [match.modules for match in known.matches]
    modules |= {one.reference: one.candidate for one in matched}
    links: tuple[dict[str, list[Link]], dict[str, list[Link]]] = ({}, {})
    for _, link in known.links:
        for side, held in zip(links, (link.reference, link.candidate), strict=True):
            side.setdefault(held.parameter.path, []).append(link)
    return RunMatch(_both_ways(dict(_places(calls))), _both_ways(modules), links, matched)


def _both_ways(found: dict[T, T]) -> tuple[dict[T, T], dict[T, T]]:
    return found, {yours: mine for mine, yours in found.items()}


def _places(calls: Alignment) -> Iterator[tuple[Spot, Spot]]:
    for pair in calls.pairs:
        for side in ("input", "output"):
            ours, theirs = pair.reference.leaves(side), pair.candidate.leaves(side)
            for i, j in partners(ours, theirs, lambda a, b: len(a.shape) == len(b.shape) and same_sort(a, b)):
                yield (pair.reference.key, side, i), (pair.candidate.key, side, j)
