"""Say of a source that the hooks which scripts let run there differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import attrs

from padiff.report import Evidence, Finding, Matching
from padiff.trace import Description


def with_hooks(
    findings: Iterable[Finding], models: tuple[Description, Description], mapping: Matching | None
) -> Iterator[Finding]:
    """Yield findings; sources tell what hooks each side has at the module, or the child that is given the value."""
    ours = {} if mapping is None else {one.candidate: one.reference for one in mapping.modules}
    for one in findings:
        inner = f"{one.candidate.path}.{one.what.taker}".lstrip(".") if one.what.taker else None
        told = []
        for path in (one.candidate.path, inner) if one.source else ():
            mine = () if path is None else models[0].hooks.get(ours.get(path, path), ())
            yours = () if path is None else models[1].hooks.get(path, ())
            if len(mine) != len(yours):
                told.append(Evidence.of("hooks", module=path, reference=mine, candidate=yours))
        yield attrs.evolve(one, evidence=(*one.evidence, *told)) if told else one
