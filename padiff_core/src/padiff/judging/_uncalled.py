"""Name a module of the candidate that does nothing, where the reference has there what its counterpart gives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import attrs

from padiff.forcing import Forced
from padiff.judging._suspicion import Suspicion
from padiff.parameters import Correspondence
from padiff.report import Evidence, Phase, Verdict
from padiff.trace import Trace


def with_uncalled_named(
    suspicions: Iterable[Suspicion], known: Correspondence, traces: tuple[Trace, Trace], forced: Forced
) -> Iterator[Suspicion]:
    """Yield the suspicions, each of a value that a module without use should have given with the module's name.

    The module is never called, and no gradient reaches its parameters: whoever copied it forgot to call it.
    """
    made = dict(_made(known, traces, forced))
    for one in suspicions:
        spot = one.spot
        paths = None if spot is None or one.phase is not Phase.FORWARD else made.get(spot.reference.token)
        if paths is not None and one.verdict is Verdict.DIFFERS:
            said = Evidence("uncalled", {"reference": paths[0], "candidate": paths[1]})
            one = attrs.evolve(one, ruling=attrs.evolve(one.ruling, evidence=(*one.ruling.evidence, said)))
        yield one


def _made(known: Correspondence, traces: tuple[Trace, Trace], forced: Forced) -> Iterator[tuple[int, tuple[str, str]]]:
    """Yield the tokens of what the reference's counterparts of modules without use give, with both paths."""
    ours, theirs = (trace.by_module() for trace in traces)
    for match in known.matches:
        paths = match.reference.module.path, match.candidate.module.path
        held = {link.candidate.parameter.path for link in match.links}
        if held and paths[1] not in theirs and held.isdisjoint(forced.reached):
            for call in ours.get(paths[0], ()):
                yield from ((leaf.token, paths) for leaf in call.outputs if not call.children)
