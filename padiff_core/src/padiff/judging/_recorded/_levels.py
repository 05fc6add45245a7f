"""Know of a matched call how far apart what it was given is, and how far apart two models drifted by then."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import attrs

from padiff.alignment import Alignment, Pair
from padiff.forcing import Spot
from padiff.grouping import grouped
from padiff.judging._findings import pair_of
from padiff.judging._recorded._meter import Meter
from padiff.judging._recorded._parameter_values import When
from padiff.judging._sizes import Size
from padiff.numerics import ACCUMULATION, EXACT, FLOORS, RANDOM, SAME, Threshold, epsilon_of, is_coarse
from padiff.parameters import Correspondence, Link
from padiff.paths import upwards
from padiff.report import SIDES, Cause, Evidence, Finding, Phase
from padiff.trace import Call, Key, Trace


@attrs.frozen
class Own:
    """How far apart the parameters are that a module holds itself."""

    error: float = 0.0
    """Relative L2, together."""
    added: float = 0.0
    """Root mean square of what is between its vectors: if it adds one to what it gives, that is as far apart."""


@attrs.frozen
class Drift:
    """How far apart what two runs hold is before a step, relative L2, where nothing was found in the steps before."""

    whole: float = 0.0
    """All parameters together."""
    modules: Mapping[str, Own] = attrs.field(factory=dict)
    """Path of a module of the candidate -> its own parameters."""
    statistics: Mapping[str, float] = attrs.field(factory=dict)
    """The same of running variances, where the frameworks track them by two conventions."""
    handed: float = 0.0
    """What the models gave to their scripts in the steps before: a sampler hands it on, or a state."""


@attrs.define(eq=False)
class Level:
    """What is known of one matched call so far: how far apart what its code was given is."""

    error: float = 0.0
    differs: bool = False
    """Whether something that it was given counts as differing."""
    least: bool = False
    """Whether it is at least so far apart, and may be far more: see `Size`."""
    drift: float = 0.0
    """How far apart the models were when it was computed, and statistics that it was computed with, which two
    frameworks track by two conventions."""
    random: bool = False
    """Whether something that it was given follows from random numbers."""
    eps: float = 0.0
    """Machine epsilon of the coarsest type of what it was given: automatic casts go back and forth, and what they cast
    is as coarse as that. No further: what is rounded so is no excuse for what stands behind it."""
    cast: float = 0.0
    """Machine epsilon of the coarsest type that one side alone computed in, of all that it was made of: what that
    rounds stays apart from there on, where two sides that cast alike round alike."""
    rounded: float = 0.0
    """How far apart is what it was given by rounding alone, however far: gradients that rounding makes much of, weights
    of steps from such."""
    turned: bool = False
    """Whether that is so since a coarse type turns signs at kinks: the norm of what was given stays."""
    scaled: float = 0.0
    """By what share what it was given is larger, or smaller, in all elements, behind casts to a coarse type."""

    def add(self, other: Level) -> None:
        """Take what is known of another one too."""
        for name in _FIELDS:  # a flag that is set is the larger one
            setattr(self, name, max(getattr(self, name), getattr(other, name)))

    def beside(self, own: Own | None, size: Size) -> Level:
        """Return what is known of what a value was made of, with the vectors that its module adds: these may be more.

        A bias that nothing hangs on (in front of a loss of differences) goes as far as a step goes, by rounding alone.
        """
        apart = own.added / size.difference.scale if own is not None and size.difference.scale else 0.0
        return attrs.evolve(self, error=max(self.error, apart), rounded=max(self.rounded, apart))

    def vaguely(self, known: Level, least: bool) -> None:
        """Take what a value was made of too, where nothing but the least that it is apart is known."""
        if least:
            self.add(known)
            self.least = True

    def rounded_to(self, size: Size, cast: float) -> float:
        """Return how much of a value's difference rounding explains, from what is known of what it was made of.

        Where both sides ``cast`` alike, their kernels may still round apart what they give in a coarse type.
        """
        own = size.eps if is_coarse(size.eps) and not cast and size.error <= size.eps else 0.0
        return min(size.error, max(FLOORS * self.rounded, own))

    @property
    def consequence(self) -> Evidence:
        """Return that a difference may follow from what is known."""
        return Evidence.of("consequence", known=self.error)

    def said_of(self, made: float) -> Evidence:
        """Return that a difference may follow from what is known; or that it is the first that rounding cannot make."""
        return self.consequence if self.differs else Evidence.of("grown", known=self.error, made=made)


_FIELDS = tuple(attrs.fields_dict(Level))


class Ends:
    """What a script is given by the calls that it makes itself: in front of the optimizer's step, and behind it."""

    def __init__(self, behind: Sequence[Pair], alignment: Alignment) -> None:
        """Take the calls that are made ``behind`` the step."""
        self._beside: dict[Call, list[Pair]] = {}
        for pair in alignment.pairs:
            for call in (pair.reference.parent, pair.candidate.parent):
                if call is not None:
                    self._beside.setdefault(call, []).append(pair)
        self._front, self._behind = Level(), Level()
        self._keys = {pair.key for pair in behind}
        self._taken = {leaf.token for pair in behind for leaf in pair.candidate.inputs}

    def of(self, pair: Pair) -> Level:
        """Return what takes what a call gives."""
        return self._behind if pair.key in self._keys else self._front

    def leading_to(self, pair: Pair | None, gradients: Mapping[Key, Level]) -> Level:
        """Return what the gradient that comes to a call may be computed from: in front of the step of nothing behind.

        Unless a call behind it takes what the one in front gave. Where one side's model makes a call that the other's
        script makes, it may be from the ``gradients`` that came to those which that model makes later.
        """
        found = Level()
        found.add(self._front)
        if pair is None or pair.key in self._keys or any(one.token in self._taken for one in pair.candidate.outputs):
            found.add(self._behind)
        for side, call in () if pair is None else enumerate((pair.reference, pair.candidate)):
            given = {leaf.token for leaf in call.outputs}  # of whom takes that itself it is met there
            for other in self._beside[call.parent] if call.parent is not None else ():
                later = (other.reference, other.candidate)[side]
                if later.index > call.index and given.isdisjoint(leaf.token for leaf in later.inputs):
                    found.add(gradients[other.key])
        return found


class Takers:
    """Who takes a tensor: the gradient that comes to it is the sum of what each of them sends, and of the script's."""

    def __init__(self, alignment: Alignment) -> None:
        """Note which calls take which tensors. What hands one on as it is (an identity) sends nothing of its own."""
        self._takers: dict[tuple[int, int], list[Call]] = {}
        for pair in alignment.pairs:
            made = {(ours.token, theirs.token) for ours, theirs in pair.made}
            for both in {(ours.token, theirs.token) for ours, theirs in pair.taken} - made:
                self._takers.setdefault(both, []).append(pair.candidate)
        self._waiting: dict[tuple[int, int], _Met] = {}

    def met(self, spot: Spot, known: Iterable[Level], takers: tuple[Level, ...]) -> _Met | None:
        """Return what to judge, by what, for whom, where the last of them sends; None before.

        A model may give what it also goes on with inside: the place is then what the script sends to it.
        """
        key = spot.reference.token, spot.candidate.token
        first, earlier, others = self._waiting.pop(key, (spot, Level(), ()))
        whole = Level()
        for level in (*known, earlier):
            whole.add(level)
        found = spot if spot.what == "output" else first, whole, (*others, *takers)
        if not self._follow(spot, key):
            return found
        self._waiting[key] = found
        return None

    def _follow(self, spot: Spot, key: tuple[int, int]) -> bool:
        """Return whether the backward pass leads to another taker yet: inside of what gives it, before, or around."""
        call, takers = spot.pair.candidate, self._takers.get(key)
        if takers is None:
            return False
        last = call.end[0] if spot.what == "output" else call.index - 1
        return any(one.index <= last for one in takers if one is not call)


_Met = tuple[Spot, Level, tuple[Level, ...]]
"""A place, what the gradient there is made of, and who is to know of it."""


def cast_of(ours: str, theirs: str) -> float:
    """Return the epsilon of the coarser type of a value that both sides make in other types; 0 where in one."""
    return 0.0 if ours == theirs else epsilon_of(ours, theirs)


def most_of_code(eps: float, *, alone: bool) -> Threshold:
    """Return what tells how far apart code may make of the same what it gives; ``alone``: a single layer's.

    What it is given differs by little in a coarse type, too: its own rounding is no more than a few epsilons.
    """
    return EXACT if is_coarse(eps) else RANDOM if alone else SAME


def drift_of(meter: Meter, known: Correspondence, when: When = "before") -> Drift:
    """Return how far apart parameters are before a step, or behind it, as far as they are known, and calls use them."""
    meter.ahead(meter.parameter_pairs(known, when))
    links = [(match, link) for match, link in known.links if not link.buffer and meter.knows(link)]
    links = [(match, link) for match, link in links if known.alignment.using(match.candidate.module.path)]
    groups = grouped(links, lambda one: one[0].candidate.module.path)
    modules = {path: _own(meter, [link for _, link in group], when) for path, group in groups.items()}
    whole = together(meter, [link for _, link in links], when)
    return Drift(whole, {path: own for path, own in modules.items() if own.error}, _statistics(meter, known, when))


def _own(meter: Meter, links: Sequence[Link], when: When) -> Own:
    """Return how far apart what a module holds is."""
    vectors = (meter.of_link(link, when) for link in links if len(link.candidate.shape) == 1)
    added = (one.apart / math.sqrt(one.difference.count) for one in vectors if one is not None and one.apart)
    return Own(together(meter, links, when), max(added, default=0.0))


def is_explained(meter: Meter, known: Correspondence) -> bool:
    """Return whether gradients agree so far that they tell whether a step is right: what lies behind follows from it.

    Where one side alone says when its optimizer stepped, they are those of all passes, behind several steps by hand: of
    them rounding alone is no consequence.
    """
    links = [link for _, link in known.links if not link.buffer and link.differentiated]
    eps = epsilon_of(*(leaf.dtype for trace in meter.traces for call in trace.calls for leaf in call.outputs))
    lone = len({trace.stepped_at is None for trace in meter.traces}) > 1
    return together(meter, links, "arrived") <= (SAME(eps) if lone else ACCUMULATION * math.sqrt(eps))


def together(meter: Meter, links: Iterable[Link], when: When) -> float:
    """Return how far apart what both sides hold of some parameters is as one, relative L2."""
    sizes = ((link, meter.of_link(link, when)) for link in links)
    known = [(one.difference, meter.scale(link, when) ** 2 * one.difference.count) for link, one in sizes if one]
    whole = sum(squares for _, squares in known)
    apart = sum(0.0 if one.equal else one.rel_l2**2 * squares for one, squares in known)
    return math.sqrt(apart / whole) if whole else 0.0


def _statistics(meter: Meter, known: Correspondence, when: When) -> dict[str, float]:
    """Return how far apart running variances are before a step, or behind it, by the path of the candidate's module.

    Where the frameworks track them by two conventions: what that makes of them in evaluation mode is as far apart.
    """
    found: dict[str, float] = {}
    if meter.models[0].framework == meter.models[1].framework:
        return found
    for match, link in known.links:
        if link.buffer and link.role == "running_var" and meter.knows(link):
            size = meter.of_link(link, when)
            found[match.candidate.module.path] = 0.0 if size is None or size.difference.equal else size.error
    return found


def is_behind(pair: Pair, traces: tuple[Trace, Trace]) -> bool:
    """Return whether a call is made behind the step of both sides' optimizers, as far as that is known.

    Where no run says when its optimizer stepped, an evaluation behind training is.
    """
    calls = pair.reference, pair.candidate
    told = _behind_step(pair, traces)
    if told:
        return all(told)
    return all(trace.root.training and not call.top.training for call, trace in zip(calls, traces, strict=True))


def timed(one: Finding, alignment: Alignment, traces: tuple[Trace, Trace]) -> Finding:
    """Return a finding with the optimizer as its cause, where one side's alone steps before the call.

    That shows where the call's own code uses weights, or calls inside that have no counterpart.
    """
    pair = pair_of(one, alignment) if one.source and one.cause is None and one.phase is Phase.FORWARD else None
    told = [] if pair is None else _behind_step(pair, traces)
    if pair is None or {*told} != {False, True} or not _uses_weights(pair, alignment, traces):
        return one
    return attrs.evolve(one, cause=Cause("stepped_before", {"side": SIDES[told.index(True)]}, verified=True))


def _uses_weights(pair: Pair, alignment: Alignment, traces: tuple[Trace, Trace]) -> bool:
    """Return whether either call uses parameters beside those of the matched calls inside of it."""
    inside = [one for one in alignment.pairs if pair.candidate in one.candidate.ancestors()]
    for side, trace in zip(SIDES, traces, strict=True):
        call, known = getattr(pair, side), {getattr(one, side).path for one in inside}
        held = (path for path, one in trace.parameters.items() if not one.buffer)
        if any(call.path in (around := {*upwards(path)}) and known.isdisjoint(around) for path in held):
            return True
    return False


def _behind_step(pair: Pair, traces: tuple[Trace, Trace]) -> list[bool]:
    """Return, of each side that says when its optimizer stepped, whether a call was made behind that."""
    held = zip((pair.reference, pair.candidate), traces, strict=True)
    return [call.index >= trace.stepped_at for call, trace in held if trace.stepped_at is not None]
