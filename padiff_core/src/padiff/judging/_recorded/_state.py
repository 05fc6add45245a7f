"""Judge the gradients of parameters, and the buffers, that one step of two recorded runs left behind."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial

import attrs

from padiff.alignment import Alignment, Pair
from padiff.judging._findings import as_one, place_around, size_in
from padiff.judging._recorded._averages import is_untouched
from padiff.judging._recorded._cleared import stepped_without
from padiff.judging._recorded._leaps import Leaps
from padiff.judging._recorded._meter import Meter
from padiff.judging._recorded._turned import sums_up
from padiff.judging._running_variance import by_convention
from padiff.judging._sizes import Size, held, magnitude, projected, size_of
from padiff.judging._suspicion import AGREEING, Ruling, Suspicion, contrasted
from padiff.numerics import FLOORS, NEGLIGIBLE
from padiff.parameters import Correspondence, Link, UnitMatch
from padiff.paths import is_at, parent
from padiff.report import SIDES, Cause, Evidence, Figures, Finding, Note, Phase, Verdict, What
from padiff.trace import Call, Description, Trace

_RUNNING = ("running_mean", "running_var")


def of_recorded_state(leaps: Leaps, known: Correspondence, *, backward: bool) -> Iterator[Suspicion | Note]:
    """Yield the gradients of parameters and the buffers that differ, and notes on conventions."""
    called, convention = leaps.reference.by_module(), 0.0
    matches = [(match, leaps.alignment.using(match.candidate.module.path)) for match in known.matches]
    for match, users in sorted(matches, key=lambda one: is_scripts_state(one[0], leaps.meter.traces)):
        calls = called.get(match.reference.module.path, [])
        for one in _buffers(leaps, match, calls, users, convention):
            if isinstance(one, float):
                convention = max(convention, one)
                frameworks = [model.framework for model in leaps.meter.models]
                yield Note("running_variance", dict(zip(SIDES, frameworks, strict=True)))
            else:
                yield one
    for match, users in matches if backward else ():
        users = users or leaps.alignment.tops or leaps.alignment.pairs[:1]  # a script uses what it holds itself
        yield from _gradients(leaps, match, [*users, *_around_left(leaps.alignment, match)])


def _around_left(alignment: Alignment, match: UnitMatch) -> Iterator[Pair]:
    """Yield the matched calls around a module's calls of one side alone: its gradient is of these, too."""
    ours = (alignment.of_reference, alignment.left_reference, match.modules.reference)
    theirs = (alignment.of_candidate, alignment.left_candidate, match.modules.candidate)
    for pair_of, left, path in (ours, theirs):
        for call in (call for call in left if call.path == path):
            yield from filter(None, [next(filter(None, map(pair_of, call.ancestors())), None)])


def is_scripts_state(match: UnitMatch, traces: tuple[Trace, Trace]) -> bool:
    """Return whether no call of either side changes what a module holds: the code around does, or the script.

    Running statistics are read in evaluation mode, and change in training alone.
    """
    read = any(link.role in _RUNNING for link in match.links)
    paths = match.modules.reference, match.modules.candidate
    calls = [call for trace, path in zip(traces, paths, strict=True) for call in trace.calls if call.path == path]
    return not any(call.training or not read for call in calls)


def _buffers(
    leaps: Leaps, match: UnitMatch, calls: list[Call], users: list[Pair], convention: float
) -> Iterator[Suspicion | float]:
    """Yield the buffers that differ, and how far running variances do by two conventions.

    Those that no call changes may be averages or copies of others: they are held to as much as these differ.
    """
    meter, uncalled = leaps.meter, is_scripts_state(match, leaps.meter.traces)
    # Running statistics change in training alone; other buffers in any call.
    read = any(link.role in _RUNNING for link in match.links)
    makers = [
        pair
        for pair in users
        if not read
        or pair.candidate.path != match.modules.candidate
        or pair.reference.training
        or pair.candidate.training
    ]
    for link in (link for link in match.links if link.buffer):
        size = meter.of_link(link, "buffer")
        used = not uncalled if read else bool(users)
        if size is None or not (used or size.difference.equal or _is_moved(meter, link)):
            continue
        variance = link.role == "running_var"
        if link.role == "running_mean":
            size = attrs.evolve(size, scale=_averaged(leaps.reference, calls))
        if variance and _is_convention(leaps, link, calls, makers):
            yield size.error
        elif not (variance and uncalled and size.error <= FLOORS * convention):
            what = What("updated_buffer", link.candidate.part.parameter)
            home = (users or leaps.alignment.pairs)[0]
            yield from _suspicions(leaps, _of_buffer(leaps, size, makers), home, link, Phase.BUFFER, what)


def _is_moved(meter: Meter, link: Link) -> bool:
    """Return whether a script changes what no call uses on either side, as far as that is known."""
    steps = zip(*(meter.held(link, when) for when in ("before", "buffer")), strict=True)
    sizes = (size_of(before, after) for before, after in steps)
    return any(size is not None and not size.difference.equal for size in sizes)


def _of_buffer(leaps: Leaps, size: Size, makers: list[Pair]) -> tuple[Ruling, bool]:
    """Rule on a buffer: where settings of the calls that change it differ, and it shows, less tells."""
    known = max((leaps.levels[pair.key].error for pair in makers if pair.key in leaps.levels), default=0.0)
    least = FLOORS * max(known, NEGLIGIBLE(size.eps))
    if size.close is None and any(map(contrasted, makers)) and size.error > least:
        evidence = Evidence.of("setting_shows", known=known, made=size.error)
        return Ruling(Verdict.DIFFERS, Figures.of(size.difference), (evidence,)), True
    return leaps.left(size, makers)


def _averaged(trace: Trace, calls: Sequence[Call]) -> float:
    """Return the magnitude of what a mean is of: the mean itself may be zero but for rounding."""
    given = (call.inputs[0].token for call in calls if call.inputs)
    return max((magnitude(held(trace, trace.values.get(token))) for token in given), default=0.0)


def _gradients(leaps: Leaps, match: UnitMatch, users: list[Pair]) -> Iterator[Suspicion | Note]:
    """Yield the gradients that differ.

    Where one side alone gets more of one behind the optimizer's last step, what it had by then is held to the other's.
    """
    for link, size in gradients_of(leaps.meter, match):
        if size is not None and (side := _unused_of(leaps, link)):
            yield Note("unused_gradients", {"side": side, "module": match.candidate.module.path})
        elif size is not None:
            what = What("parameter_gradient", link.candidate.part.parameter)
            first = _first_ruled(leaps, link, size, users)
            ruling, source = first or leaps.left(size, users, partial(leaps.meter.held, link, "gradient"))
            follows = ruling.verdict not in AGREEING and not source
            if follows and sums_up(match, link, size, users, leaps.gradients, leaps.meter):
                ruling = Ruling(Verdict.ROUNDING, ruling.figures, (Evidence("signs_turned"),))
                leaps.magnified.setdefault(users[0], "signs_turned")
            differs = first is None and ruling.verdict not in AGREEING
            if differs and (side := _cleared_on(leaps, link) or stepped_without(leaps.meter, link)):
                yield Note("unused_gradients", {"side": side, "module": match.candidate.module.path})
                continue
            side = None if first or ruling.verdict in AGREEING else _behind_of(leaps, link)
            if side is not None and (used := leaps.meter.of_link(link, "used")) is not None:
                both = partial(leaps.meter.held, link, "used")
                ruling, source = leaps.left(attrs.evolve(used, scale=size.scale), users, both)
                if ruling.verdict in AGREEING:
                    yield Note("unused_gradients", {"side": side, "module": match.candidate.module.path})
            cause = _cause_of_none(leaps, link, what)
            if cause is not None and ruling.verdict not in AGREEING:
                ruling, source = attrs.evolve(ruling, hint=cause), True
            yield from _suspicions(leaps, (ruling, source), users[0], link, Phase.BACKWARD, what)


def _first_ruled(leaps: Leaps, link: Link, size: Size, users: list[Pair]) -> tuple[Ruling, bool] | None:
    """Rule on what of a gradient both optimizers stepped with first, where a difference arises there already.

    That follows from no call behind the step, however far apart what these are given is.
    """
    front = [pair for pair in users if pair.key not in leaps.moved]
    if len(front) < len(users) and all(_got(leaps, link, "arrived")):
        arrived = leaps.meter.of_link(link, "arrived")
        if arrived is not None and front:
            first = attrs.evolve(arrived, scale=size.scale)
            found = leaps.left(first, front, partial(leaps.meter.held, link, "arrived"))
            return found if found[1] else None
    return None


def _paths(link: Link) -> tuple[list[str], list[str]]:
    return [one.parameter.path for one in link.references], [link.candidate.parameter.path]


def _got(leaps: Leaps, link: Link, named: str) -> list[bool]:
    """Return, of each side, whether its trace holds something of a parameter under a name."""
    sides = zip(_paths(link), leaps.meter.traces, strict=True)
    return [any(path in getattr(trace, named) for path in held) for held, trace in sides]


def _cause_of_none(leaps: Leaps, link: Link, what: What) -> Cause | None:
    """Return why one side alone got no gradient of a parameter: it is frozen, or nothing steps it there."""
    side = _frozen_side(leaps, link)
    if side is not None:
        return Cause("frozen", {"name": what.name, "side": side}, verified=True)
    stepped = [settings is not None for settings in leaps.meter.settings(link)]
    has = list(zip(stepped, _got(leaps, link, "parameter_gradients"), strict=True))
    if sorted(has) != [(False, False), (True, True)] or not all(trace.stepped for trace in leaps.meter.traces):
        return None
    return Cause("not_stepped", {"side": SIDES[has[0] == (True, True)]}, verified=True)


def _frozen_side(leaps: Leaps, link: Link) -> str | None:
    """Return the side that alone froze a parameter, and got no gradient of it; None where neither or both did."""
    traces = leaps.meter.traces
    held = link.references, [link.candidate]
    trained = [
        any(trace.parameters.get(one.parameter.path, one.parameter).trainable for one in both)
        for both, trace in zip(held, traces, strict=True)
    ]
    got = _got(leaps, link, "parameter_gradients")
    return next((SIDES[n] for n in (0, 1) if not trained[n] and any(trained) and not got[n]), None)


def _behind_of(leaps: Leaps, link: Link) -> str | None:
    """Return the side that alone got more of a gradient behind the last step of a parameter, which both make."""
    more = _got(leaps, link, "used")
    stepped = None not in leaps.meter.settings(link) and all(one.stepped_at is not None for one in leaps.meter.traces)
    return SIDES[more[1]] if stepped and more[0] != more[1] else None


def _cleared_on(leaps: Leaps, link: Link) -> str | None:
    """Return the side that alone got, and cleared, more of a gradient in front of the step; None where none is."""
    cleared = leaps.meter.clears(link)
    behind = any(_got(leaps, link, "arrived"))
    return SIDES[cleared[1]] if any(cleared) and not behind else None


def _unused_of(leaps: Leaps, link: Link) -> str | None:
    """Return the side that alone got a gradient of a parameter which no optimizer steps then: a critic's, say.

    Both sides step others, and leave it as it is. What it would do in a later step shows in what is stepped with then.
    """
    got = _got(leaps, link, "parameter_gradients")
    return SIDES[got[1]] if got[0] != got[1] and is_untouched(link, leaps.meter) else None


def frozen_in(leaps: Leaps, known: Correspondence) -> dict[str, bool]:
    """Return paths of the candidate's modules of which one side alone got gradients: whether the other froze that."""
    found: dict[str, bool] = {}
    for match, link in known.links:
        ours, theirs = _got(leaps, link, "parameter_gradients")
        if not link.buffer and ours != theirs:
            path = match.candidate.module.path
            found[path] = found.get(path, True) and _frozen_side(leaps, link) is not None
    return found


def beside_unused(told: Sequence[Suspicion], leaps: Leaps, known: Correspondence) -> list[Suspicion]:
    """Return what differs backward, without gradients that one side alone gets, and that no optimizer steps by.

    One side freezes layers, the other steps them by zeros: what leads to these alone gets gradients there alone.
    """
    links = [link for _, link in known.links if not link.buffer]
    lone = [link for link in links if len({*_got(leaps, link, "parameter_gradients")}) > 1]
    if not lone or not all(_unused_of(leaps, link) for link in lone):
        return list(told)

    def is_lone(one: Suspicion) -> bool:
        tokens = () if one.spot is None else (one.spot.reference.token, one.spot.candidate.token)
        traces = leaps.meter.traces
        return len({token in trace.gradients for token, trace in zip(tokens, traces, strict=False)}) > 1

    return [one for one in told if one.arises or not is_lone(one)]


def of_uncalled_state(
    told: Sequence[Suspicion], findings: Sequence[Finding], known: Correspondence, leaps: Leaps
) -> list[Finding]:
    """Return findings of which those on buffers that no call changes are one, at the module that holds them.

    The script did, which copies or averages models. A gradient of what no call holds is placed there, too.
    """
    models = leaps.meter.models
    matches = {match.candidate.module.path: match for match in known.matches}
    homes = {path for path, match in matches.items() if is_scripts_state(match, leaps.meter.traces)}
    found: list[Finding] = []
    moved: dict[bool, list[Finding]] = {}
    for suspicion, one in zip(told, findings, strict=True):
        home = None if suspicion.held is None else parent(suspicion.held.parameter.path)
        changed = one.phase is Phase.BUFFER and home in homes
        if home is not None and (changed or not is_at(home, one.candidate.path or "")):
            reference, candidate = map(place_around, models, ([matches[home].modules.reference], [home]))
            one = attrs.evolve(one, reference=reference, candidate=candidate)
        (moved.setdefault(one.source, []) if changed else found).append(one)
    for group in moved.values():
        worst = max(group, key=size_in)
        told_of = {"evidence": worst.evidence, "figures": worst.figures, "cause": worst.cause}
        found.append(worst if len(group) == 1 else as_one(group, models, "buffers", "buffers", **told_of))
    return found


def frozen_together(findings: Sequence[Finding], models: tuple[Description, Description]) -> list[Finding]:
    """Return findings of which those of parameters that one side alone froze are one, at the module that holds them.

    So are those of parameters that one side alone steps.
    """
    groups: dict[object, list[Finding]] = {}
    for one in findings:
        cause = one.cause
        alike = cause is not None and one.phase is Phase.BACKWARD and cause.name in ("frozen", "not_stepped")
        key = (one.source, cause.name, cause.parameters["side"]) if cause is not None and alike else id(one)
        groups.setdefault(key, []).append(one)
    return [group[0] if len(group) == 1 else _together(group, models) for group in groups.values()]


def _together(group: Sequence[Finding], models: tuple[Description, Description]) -> Finding:
    first = group[0]
    assert first.cause is not None
    named = {"name": f"each of {len(group)} parameters"} if "name" in first.cause.parameters else {}
    cause = attrs.evolve(first.cause, parameters={**first.cause.parameters, **named})
    figures = max(group, key=size_in).figures
    return as_one(group, models, "gradients", "parameters", evidence=first.evidence, cause=cause, figures=figures)


def gradients_of(meter: Meter, match: UnitMatch) -> list[tuple[Link, Size | None]]:
    """Return how far apart gradients are; one that cancels to zero (a bias before a softmax) is held to its unit's."""
    links = [link for link in match.links if not link.buffer and link.differentiated]
    found = [(link, meter.of_link(link, "gradient")) for link in links]
    if all(size is None or size.difference.equal for _, size in found):
        return found
    scale = max(meter.scale(link, "gradient") for link in links)
    return [(link, None if size is None else attrs.evolve(size, scale=scale)) for link, size in found]


def _suspicions(
    leaps: Leaps, ruled: tuple[Ruling, bool], pair: Pair, link: Link, phase: Phase, what: What
) -> Iterator[Suspicion]:
    ruling, source = ruled
    if ruling.verdict not in AGREEING:
        blamed = leaps.innermost_known(pair, backward=phase is Phase.BACKWARD)
        order, vague = pair.candidate.index, blamed is not pair
        yield Suspicion(blamed, phase, what, ruling, held=link.candidate, arises=source, vague=vague, order=order)


def _is_convention(leaps: Leaps, link: Link, calls: list[Call], users: list[Pair]) -> bool:
    """Return whether running variances differ by two conventions, and else by no more than what was averaged does.

    ``calls`` are the reference's that averaged, ``users`` the matched ones that these are, or lie in.
    """
    meter = leaps.meter
    calls = [call for call in calls if call.training]
    if meter.models[0].framework == meter.models[1].framework or not calls:
        return False
    values = (*meter.held(link, "before"), *meter.held(link, "buffer"))
    known = [one for one in map(projected, values) if one is not None]
    if len(known) < 4 or len({one.shape for one in known}) > 1:
        return False
    count, earlier = math.prod(link.reference.shape), (known[0], known[1])
    found = by_convention(calls, leaps.reference, earlier, known[2], known[3], count)
    sizes = (size_of(known[2], one) for one in found)
    return any(one is not None and _of_buffer(leaps, one, users)[0].verdict in AGREEING for one in sizes)
