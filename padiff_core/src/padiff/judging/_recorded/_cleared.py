"""Tell which gradients are of no effect on an optimizer's step: scripts clear them, or give it others."""

from __future__ import annotations

from padiff.judging._recorded._given_gradients import given_alike, of_last_pass, of_the_script
from padiff.judging._recorded._levels import together
from padiff.judging._recorded._meter import Meter
from padiff.judging._sizes import held, magnitude
from padiff.numerics import SAME, epsilon_of
from padiff.parameters import Correspondence, Link
from padiff.report import SIDES


def cleared_alike(meter: Meter, known: Correspondence) -> tuple[set[str], set[str]]:
    """Return, of each side, the parameters of which it cleared gradients, to one effect with the other side.

    Both did, or what one of them cleared (a generator's, which the critic's loss sent) never came to the other.
    """
    groups = [of_last_pass(trace) for trace in meter.traces]
    cleared: tuple[set[str], set[str]] = set(), set()
    links = [link for _, link in known.links if not link.buffer and link.differentiated] if any(groups) else []
    for side, paths in ((number, paths) for number in (0, 1) for paths in groups[number]):
        own = [link for link in links if (link.reference, link.candidate)[side].parameter.path in paths]
        others = {(link.reference, link.candidate)[1 - side].parameter.path for link in own}
        eps = epsilon_of(*(link.candidate.parameter.dtype for link in own))
        if others <= set().union(*groups[1 - side]) or together(meter, own, "kept") <= SAME(eps):
            cleared[side].update(paths)
    return cleared


def stepped_without(meter: Meter, link: Link) -> str | None:
    """Return the side that got more of a gradient, where both scripts give their optimizers the same in place of it.

    The steps of an inner loop are by gradients of the parameters, or of tensors that were made of them.
    """
    paths = [one.parameter.path for one in link.references], [link.candidate.parameter.path]
    if not all({*some} <= of_the_script(trace) for some, trace in zip(paths, meter.traces, strict=True)):
        return None
    given = [[held(one, one.handed[path]) for path in some] for some, one in zip(paths, meter.traces, strict=True)]
    if len(paths[0]) != len(paths[1]) or not all(map(given_alike, *given)):
        return None
    more = [0.0 if one is None else magnitude(one) for one in meter.held(link, "gradient")]
    return SIDES[more[1] > more[0]]
