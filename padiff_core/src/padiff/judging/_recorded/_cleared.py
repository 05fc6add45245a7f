"""Tell which gradients scripts cleared in front of an optimizer's step, so that they are of no effect there."""

from __future__ import annotations

from padiff.judging._recorded._given_gradients import of_last_pass
from padiff.judging._recorded._levels import together
from padiff.judging._recorded._meter import Meter
from padiff.numerics import SAME, epsilon_of
from padiff.parameters import Correspondence


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
