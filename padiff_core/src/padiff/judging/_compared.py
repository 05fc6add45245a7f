"""Judge every call: the compared tree, its coverage, what differs downstream, and what was matched with what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from padiff.alignment import Alignment, Pair
from padiff.forcing import Forced
from padiff.judging._findings import place_of
from padiff.judging._suspicion import Suspicion
from padiff.numerics import SAME, Difference, difference, epsilon_of
from padiff.parameters import Correspondence, Link
from padiff.report import (
    SIDES,
    ComparedCall,
    Coverage,
    Evidence,
    Figures,
    Finding,
    MatchedModules,
    MatchedParameters,
    Matching,
    Phase,
    Place,
    Verdict,
    What,
)
from padiff.trace import Call, Leaf, Trace

_SEVERITY = (
    Verdict.EQUAL,
    Verdict.ROUNDING,
    Verdict.WITHIN_TOLERANCE,
    Verdict.PRECISION,
    Verdict.STOCHASTIC,
    Verdict.DIFFERS,
)


def compared_calls(
    alignment: Alignment,
    forced: Forced,
    suspicions: Sequence[Suspicion],
    traces: tuple[Trace, Trace],
    *,
    ignored: Callable[[Pair], bool],
    tolerated: bool,
    step: int,
    unseen: Callable[[Pair], bool] = lambda pair: False,
) -> list[ComparedCall]:
    """Return every matched call in the candidate's order, and after each side's what is left over there.

    ``traces`` are those of the free runs; ``tolerated`` says that the user gave a tolerance, ``unseen`` of which calls
    nothing was kept by which what they give could be compared.
    """
    verdicts, figures = _judged(forced, suspicions, tolerated=tolerated)
    unjudged = Verdict.EQUAL, Verdict.NOT_COMPARED
    matched = {pair.candidate.index: pair for pair in alignment.pairs}
    left = [call for call in alignment.left_candidate if _is_left(alignment, call)]
    order = sorted([*matched, *(call.index for call in left)])
    position = {index: number for number, index in enumerate(order)}
    by_reference = {pair.reference.index: position[index] for index, pair in matched.items()}

    def around(call: Call, positions: dict[int, int]) -> int | None:
        return next((positions[above.index] for above in call.ancestors() if above.index in positions), None)

    found = {
        call.index: ComparedCall(Verdict.UNMATCHED, None, _brief(call), parent=around(call, position), step=step)
        for call in left
    }
    for index, pair in matched.items():
        found[index] = ComparedCall(
            Verdict.IGNORED if ignored(pair) else verdicts.get(index) or unjudged[unseen(pair)],
            _brief(pair.reference),
            _brief(pair.candidate),
            pair.why,
            figures.get(index),
            _free(pair, *traces),
            around(pair.candidate, position),
            step,
        )
    return [found[index] for index in order] + [
        ComparedCall(Verdict.UNMATCHED, _brief(call), None, parent=around(call, by_reference), step=step)
        for call in alignment.left_reference
        if _is_left(alignment, call)
    ]


def _judged(
    forced: Forced, suspicions: Sequence[Suspicion], *, tolerated: bool
) -> tuple[dict[int, Verdict], dict[int, Figures]]:
    """Return the worst verdict and the largest difference of each call, by the candidate's index."""
    verdicts: dict[int, Verdict] = {}
    figures: dict[int, Figures] = {}
    small = Verdict.WITHIN_TOLERANCE if tolerated else Verdict.ROUNDING
    seen = [
        (check.spot.owner.candidate.index, small, Figures.of(check.difference))
        for check in forced.checks
        if check.spot.owner is not None
    ]
    for index, verdict, size in (*seen, *((s.pair.candidate.index, s.verdict, s.ruling.figures) for s in suspicions)):
        known = verdicts.get(index, Verdict.EQUAL)
        if _SEVERITY.index(verdict) >= _SEVERITY.index(known):
            worse = known is not verdict or not size.rel_l2 <= figures[index].rel_l2
            figures[index] = size if worse else figures[index]
            verdicts[index] = verdict
    return verdicts, figures


def _is_left(alignment: Alignment, call: Call) -> bool:
    return not (call.module.operation or alignment.is_inside(call))


def _brief(call: Call) -> Place:
    return place_of(call, stack=False)


def _free(pair: Pair, trace: Trace, free: Trace) -> Figures | None:
    """Return how far a call's outputs differ where each model runs freely, as far as samples tell."""
    worst = sampled_difference(pair.made, trace, free)
    return None if worst is None else Figures.of(worst)


def sampled_difference(leaves: Iterable[tuple[Leaf, Leaf]], ours: Trace, theirs: Trace) -> Difference | None:
    """Return the largest difference between matched tensors of two runs, as far as samples of them show."""
    both = ((ours.samples.get(a.token), theirs.samples.get(b.token)) for a, b in leaves)
    found = [difference(a, b) for a, b in both if a is not None and b is not None and a.shape == b.shape]
    return max(found, key=lambda one: one.rel_l2, default=None)


def downstream(calls: Sequence[ComparedCall], alignment: Alignment, found: Sequence[Finding]) -> Iterator[Finding]:
    """Yield the calls whose output in the free run carries a difference that arose before; one of each module."""
    seen = {f.candidate.path for f in found if f.source}
    types = {
        (pair.candidate.path, pair.candidate.ordinal): epsilon_of(
            *(leaf.dtype for call in (pair.reference, pair.candidate) for leaf in call.outputs)
        )
        for pair in alignment.pairs
    }
    for call in calls:
        if call.free is None or call.reference is None or call.candidate is None or call.candidate.path in seen:
            continue
        if call.free.rel_l2 > SAME(types[call.candidate.path or "", call.candidate.call]):
            seen.add(call.candidate.path)
            yield Finding(
                verdict=Verdict.DIFFERS,
                phase=Phase.FORWARD,
                reference=call.reference,
                candidate=call.candidate,
                what=What("free_output"),
                figures=call.free,
                evidence=(Evidence("free_run"),),
                step=call.step,
            )


def matching_of(alignment: Alignment, correspondence: Correspondence, findings: Sequence[Finding]) -> Matching:
    """Return what was matched with what; ``findings`` tell the parameters without counterpart."""
    pairs = [pair for pair in alignment.pairs if not pair.candidate.module.operation]
    rows = Counter(
        (
            pair.reference.path,
            pair.candidate.path,
            pair.reference.module.class_name,
            pair.candidate.module.class_name,
            pair.why,
        )
        for pair in pairs
    )
    left = {"reference": alignment.left_reference, "candidate": alignment.left_candidate}
    modules = {
        side: tuple(dict.fromkeys(call.path for call in calls if _is_left(alignment, call)))
        for side, calls in left.items()
    }
    return Matching(
        tuple(MatchedModules(*row, calls) for row, calls in rows.items()),
        tuple(
            MatchedParameters(
                tuple(dict.fromkeys(held.parameter.path for held in link.references)),
                link.candidate.parameter.path,
                _layout(link),
                link.candidate.parameter.buffer,
            )
            for _, link in correspondence.links
        ),
        modules,
        missing_paths(findings),
    )


def missing_paths(findings: Sequence[Finding]) -> dict[str, tuple[str, ...]]:
    """Return the paths of the parameters that findings say only one side has, by that side."""
    return {
        side: tuple(path for finding in findings if (path := missing_path(finding, side)) is not None) for side in SIDES
    }


def missing_path(finding: Finding, side: str) -> str | None:
    """Return the path of the parameter that a finding says only one side has; None for any other finding."""
    if finding.phase is not Phase.PARAMETER or finding.side not in (side, None):
        return None
    unlike = next((one.figures["paths"] for one in finding.evidence if one.kind.endswith("other_shape")), None)
    if unlike is not None or finding.side is None:
        path: str | None = None if unlike is None else unlike.get(side)
        return path
    return next((one.figures["path"] for one in finding.evidence if one.kind == "no_counterpart"), None)


def _layout(link: Link) -> str:
    """Return how the candidate's parameter holds the reference's values."""
    ours, theirs = link.reference.part, link.candidate.part
    if not link.single:
        return link.layout
    if ours.numbers or theirs.numbers:
        return "complex numbers as real ones"
    if ours.partial or theirs.partial:
        return "part of a packed parameter"
    if (link.axes and not link.transposed) or link.orders or not (ours.permuted and theirs.permuted):
        return "rearranged"
    rank = len(link.reference.shape)
    if rank != len(link.candidate.shape):
        return "reshaped"
    if rank == 2:
        return link.layout
    orders = {part.transpose or tuple(range(rank)) for part in (ours, theirs)}
    return "axes permuted" if len(orders) > 1 else "as in the reference"


def coverage_of(trace: Trace, alignment: Alignment, kept: Collection[int] | None = None) -> Coverage:
    """Return which of the reference's values that lead to its outputs were compared with the candidate's.

    The recorded dataflow is walked back from the outputs: a call without calls inside makes its outputs of its inputs;
    what the own code of a call makes may be made of all that it was given and all that the calls inside gave. ``kept``
    are the tokens whose values both sides kept; None where they kept all.
    """
    compared = set(_compared(alignment)) if kept is None else set(_compared(alignment)) & set(kept)
    makers: dict[int, Call] = {}
    for call in reversed(trace.calls):
        # Inner calls begin later: what a call only hands on is the inner one's.
        for leaf in call.outputs:
            makers.setdefault(leaf.token, call)
    owners = {leaf.token: call.parent for call in reversed(trace.calls) for leaf in call.inputs if call.parent}
    tops = [call for call in trace.calls if call.parent is None]
    given = {leaf.token for call in tops for leaf in call.inputs}
    seen: set[int] = set()
    opened: set[int] = set()
    missing: dict[int, Call] = {}
    inside: dict[int, Call] = {}
    """Of regions that are compared as one."""
    todo = [leaf.token for call in tops for leaf in call.outputs]
    while todo:
        token = todo.pop()
        if token in seen:
            continue
        seen.add(token)
        maker = makers.get(token) or owners.get(token)
        if token not in compared:
            (inside if maker and alignment.is_inside(maker) else missing)[token] = maker or trace.root
        if token in given or maker is None or maker.index in opened:
            continue
        opened.add(maker.index)
        todo += [leaf.token for leaf in _sources(maker)]
    places = dict.fromkeys(place_of(call) for call in sorted(missing.values(), key=lambda call: call.index))
    total = len(seen) - len(inside)
    return Coverage(total - len(missing), total, tuple(places))


def _compared(alignment: Alignment) -> Iterator[int]:
    for pair in alignment.pairs:
        yield from (ours.token for ours, _ in (*pair.taken, *pair.made))


def _sources(call: Call) -> Iterator[Leaf]:
    """Yield what a call's own code may have made a tensor of."""
    yield from call.inputs
    for child in call.children:
        yield from child.outputs
        yield from child.inputs
