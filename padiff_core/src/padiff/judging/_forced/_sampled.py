"""Judge what chance makes equal: one seed may drop nothing, or the same, of what differs under another one.

Of each pair whose own code takes random numbers all values that it makes are compared by their distributions, and the
gradients that it sends.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

import attrs

from padiff.alignment import Alignment, Pair
from padiff.forcing import Reader, Spot, gradient_reader
from padiff.judging._forced._question import TOGETHER_AT_SIGHT, Question
from padiff.judging._forced._settle import Settler
from padiff.judging._suspicion import Ruling, Suspicion, value_at, within
from padiff.numerics import epsilon_of
from padiff.report import Figures, Phase, Verdict
from padiff.trace import contrasts


def sampled_values(
    settler: Settler, reading: Callable[[Spot, Pair], Reader], known: Sequence[Suspicion]
) -> Iterator[Suspicion]:
    """Yield the values of another distribution that are not suspected yet."""
    told = {(one.pair.key, one.spot.key) for one in known if one.spot is not None}
    for pair in _takers(settler):
        for spot in _made(settler.bench.alignment, pair):
            if (pair.key, spot.key) not in told:
                yield from _ruled(settler, pair, spot, reading(spot, pair), backward=False)


def sampled_gradients(settler: Settler, known: Sequence[Suspicion]) -> Iterator[Suspicion]:
    """Yield the gradients of another distribution that a call sends whose values, and those inside, are right."""
    wrong = {one.pair.key for one in known if one.verdict is Verdict.DIFFERS}
    for pair in _takers(settler):
        children = _children(settler.bench.alignment, pair)
        if wrong.isdisjoint(one.key for one in (pair, *children)):
            spots = ((spot, gradient_reader(spot.reference.token)) for spot in _taken(pair, children))
            found = (one for both in spots for one in _ruled(settler, pair, *both, backward=True))
            yield from itertools.islice(found, 1)


def _takers(settler: Settler) -> list[Pair]:
    return [pair for pair in settler.bench.alignment.pairs if settler.randomness.takes_numbers(pair)]


def _ruled(settler: Settler, pair: Pair, spot: Spot, read: Reader, *, backward: bool) -> Iterator[Suspicion]:
    randomness, eps = settler.randomness, epsilon_of(spot.reference.dtype)
    asked = Question(pair, read, TOGETHER_AT_SIGHT, backward=backward, what=within(pair, spot), eps=eps)
    apart = randomness.difference(asked)
    if apart is None or not any(randomness.samples(asked, ours=ours) for ours in (True, False)):
        return
    ruling = Ruling(Verdict.EQUAL, Figures.of(apart), ())
    ruling = settler.with_randomness(ruling, attrs.evolve(asked, native=apart))
    # Settings that differ tell, whatever the numbers.
    hidden = ruling.verdict is Verdict.STOCHASTIC and contrasts(pair.reference, pair.candidate)
    if ruling.verdict is Verdict.DIFFERS or (hidden and not backward):
        between = spot.between if pair.candidate.children and not backward else None
        phase = Phase.BACKWARD if backward else Phase.FORWARD
        yield Suspicion(pair, phase, value_at(spot, gradient=backward), ruling, between, spot)


def _children(alignment: Alignment, pair: Pair) -> list[Pair]:
    return [child for child in alignment.pairs if alignment.around(child) is pair]


def _made(alignment: Alignment, pair: Pair) -> Iterator[Spot]:
    """Yield the tensors that a pair's own code makes: it calls others with them, or returns them."""
    children = _children(alignment, pair)
    handed = {leaf.token for leaf in pair.reference.inputs}
    handed |= {leaf.token for child in children for leaf in child.reference.outputs}
    last = "start"
    for child in children:
        name = pair.name_of(child.candidate)
        for leaves in child.taken:
            if leaves[0].token not in handed:
                yield Spot("input", child, pair, (last, name), *leaves)
        last = name
    for leaves in pair.made:
        if leaves[0].token not in handed:
            yield Spot("output", pair, pair, (last, "end"), *leaves)


def _taken(pair: Pair, children: Sequence[Pair]) -> Iterator[Spot]:
    """Yield the tensors that a pair's own code takes: it was given them, or called others that gave them."""
    for leaves in pair.taken:
        yield Spot("input", pair, pair, ("start", "start"), *leaves)
    for child in children:
        for leaves in child.made:
            yield Spot("output", child, pair, ("start", "end"), *leaves)
