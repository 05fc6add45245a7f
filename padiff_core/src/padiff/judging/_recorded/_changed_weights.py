"""Say of a call that differs whether a script may have changed the weights that it holds, in front of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs
import numpy as np

from padiff.forcing import RecordedSide
from padiff.judging._recorded._averages import averages_of, is_scripts
from padiff.judging._recorded._given_gradients import sampled
from padiff.judging._recorded._meter import Meter
from padiff.judging._recorded._parameter_values import When
from padiff.judging._recorded._state import is_scripts_state
from padiff.numerics import EXACT, epsilon_of
from padiff.parameters import Correspondence, Link, UnitMatch
from padiff.report import SIDES, Cause, Evidence, Finding, Phase, Verdict


def beside_changed_weights(found: Sequence[Finding], meter: Meter, known: Correspondence) -> list[Finding]:
    """Return findings of which those on outputs say so where the call's own weights were equal before the step alone.

    No optimizer steps these: a momentum encoder, which is moved before it is called, or is not. Where both are averages
    of others by then, how much these keep is the cause. Those that one side's script alone changed between the steps
    are, too: a checkpoint that it went on from, say.
    """
    told = []
    stepped = [link for _, link in known.links if not link.buffer and not is_scripts(link, meter)]
    for one in found:
        lone = one.source and one.phase is Phase.FORWARD and one.cause is None
        own = [(match, link) for match, link in known.links if match.candidate.module.path == one.candidate.path]
        links = [link for _, link in own]
        between = [_between(side, links, number) for number, side in enumerate(meter.sides)] if lone else [[], []]
        names = list(_changed(own, meter)) if lone else []
        own_links = (link for link in links if link.candidate.part.parameter in names)
        moved = (averages_of(meter, link, stepped, epsilon_of(link.candidate.parameter.dtype)) for link in own_links)
        if average := next((each.cause for each in moved if each and each.cause), None):
            one = attrs.evolve(one, cause=average)
        elif bool(between[0]) != bool(between[1]):
            data = {"side": SIDES[bool(between[1])], "names": between[0] or between[1]}
            one = attrs.evolve(one, cause=Cause("changed_between_steps", data, verified=True))
        elif lone and any(not link.buffer for link in links) and _agreed_before(one, found, known):
            one = attrs.evolve(one, evidence=(*one.evidence, Evidence("changed_within_step")))
        elif names:
            one = attrs.evolve(one, evidence=(*one.evidence, Evidence.of("weights_changed", names=names)))
        told.append(one)
    return told


def else_of_changed_weights(found: Sequence[Finding], known: Correspondence) -> list[Finding]:
    """Return findings of which the first output that differs is a source, where nothing else is one.

    It holds weights, and gave the same in an earlier call of the step: a script moved them in between, by so little
    that no call gives far more of a difference than it got.
    """
    if any(one.source for one in found):
        return list(found)
    ways = {match.candidate.module.path for match, link in known.links if not link.buffer}
    differs = (one for one in found if one.verdict is Verdict.DIFFERS and one.phase is Phase.FORWARD)
    held = (one for one in differs if one.what.kind == "output" and one.candidate.path in ways)
    first = next((one for one in held if _agreed_before(one, found, known)), None)
    return [attrs.evolve(one, source=True) if one is first else one for one in found]


def _between(side: RecordedSide, links: Sequence[Link], number: int) -> list[str]:
    """Return the parameters of links that a side holds otherwise as a step begins than the step before left them."""
    names = []
    for link in links:
        own = (link.reference, link.candidate)[number]
        glimpse = side.trace.summaries.get(side.trace.weights.get(own.parameter.path, 0))
        trace, key = side.before.get(own.parameter.path, (None, 0))
        if glimpse is None or glimpse.sample is None or trace is None or trace is side.trace:
            continue
        kept = sampled(trace, key)
        if kept is not None and kept.shape == glimpse.sample.shape and not np.array_equal(kept, glimpse.sample):
            names.append(own.part.parameter)
    return names


def _agreed_before(one: Finding, found: Sequence[Finding], known: Correspondence) -> bool:
    """Return whether a module gave the same in an earlier call of the script's, in the same step."""
    apart = {(finding.candidate.path, finding.candidate.call) for finding in found if finding.phase is Phase.FORWARD}
    calls = {pair.key: pair.candidate for pair in known.alignment.using(one.candidate.path or "")}
    here = next((call for key, call in calls.items() if key == (one.candidate.path, one.candidate.call)), None)
    return here is not None and any(
        call.top.index < here.top.index and key not in apart and key[0] == one.candidate.path
        for key, call in calls.items()
    )


def _changed(links: Sequence[tuple[UnitMatch, Link]], meter: Meter) -> Iterator[str]:
    for match, link in links:
        own = is_scripts_state(match, meter.traces) if link.buffer else is_scripts(link, meter)
        behind: When = "buffer" if link.buffer else "updated"
        if own and _differs(link, meter, behind) and not _differs(link, meter, "before"):
            yield link.candidate.part.parameter


def _differs(link: Link, meter: Meter, when: When) -> bool:
    size = meter.of_link(link, when)
    return size is None or (not size.difference.equal and size.error > EXACT(size.eps))
