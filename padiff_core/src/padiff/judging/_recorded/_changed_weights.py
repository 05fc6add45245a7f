"""Say of a call that differs whether a script may have changed the weights that it holds, in front of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from padiff.judging._recorded._meter import Meter
from padiff.judging._recorded._parameter_values import When
from padiff.judging._recorded._update import is_scripts
from padiff.numerics import EXACT
from padiff.parameters import Correspondence, Link
from padiff.report import Evidence, Finding, Phase


def beside_changed_weights(found: Sequence[Finding], meter: Meter, known: Correspondence) -> list[Finding]:
    """Return findings of which those on outputs say so where the call's own weights were equal before the step alone.

    No optimizer steps these: a momentum encoder, which is moved before it is called, or is not.
    """
    told = []
    for one in found:
        names = list(_changed(one, meter, known)) if one.source and one.phase is Phase.FORWARD else []
        if names and one.cause is None:
            one = attrs.evolve(one, evidence=(*one.evidence, Evidence.of("weights_changed", names=names)))
        told.append(one)
    return told


def _changed(one: Finding, meter: Meter, known: Correspondence) -> Iterator[str]:
    links = (link for match, link in known.links if match.candidate.module.path == one.candidate.path)
    for link in (one for one in links if not one.buffer and is_scripts(one, meter)):
        if _differs(link, meter, "updated") and not _differs(link, meter, "before"):
            yield link.candidate.part.parameter


def _differs(link: Link, meter: Meter, when: When) -> bool:
    size = meter.of_link(link, when)
    return size is None or (not size.difference.equal and size.error > EXACT(size.eps))
