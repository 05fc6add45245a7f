"""Group sources into what is one fault to a reader: one line of code, one setting, one kind of trouble."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import attrs

from padiff.numerics import FLOORS
from padiff.paths import last
from padiff.report import _words as words
from padiff.report._finding import SIDES, Cause, Finding, Phase, Verdict
from padiff.report._report import Report

_Paths = tuple[str | None, str | None]
_FEW = 3
"""So many blocks are not folded."""
_SETTINGS = ("settings", "optimizer_settings", "step_scaled", "kink", "frozen", "tied", "inputs")
"""Causes that are one wherever they show: what was set once, to one value, for many modules or parameters."""
_WHATEVER_NAMES = ("frozen", "inputs")
"""Those of them that name a parameter, or an argument: several are one all the same."""
_SPREAD = ("out_of_step", "wrong_on_ranks", "shard_order")
"""Causes that are one in the weights of a job's ranks: how a script gives each rank its own."""
_NUMBER = re.compile(r"[(, =]-?\d*\.\d")
"""A number in an operation that is told: it may be what a block holds."""
_SHAPE = re.compile(r"(?<=\b\w)\[[\d, ]*\]")
"""The shape of a value that an operation is told to take: it differs with what a block is given."""
_OF_CODE = ("code", "code_alone", "kernel", "taken", "cut", "cut_given")
"""Causes that are one at one line of the candidate's code, whichever calls run it: numbers may be what each holds."""
_SAID = re.compile(r"-?[\w.]+(?![\w.]*[=\[(])")
"""A number, or a word, that an operation is told: no keyword, nor what is called."""
_MODULE = re.compile(r"(?<=the output of )[\w.]+")
"""What a side calls the module that gives a value: the other one may have another name for its counterpart."""
_OPERATION = re.compile(r"\w+\([^()]*\)")
"""An operation that is told, with what it is told."""
_ONE_AS = {"input": "output", "buffer": "parameter", "buffers": "updated_buffer", "updates": "updated_parameter"}
"""Kinds of which one cause is one fault: what one call's code gives, the next is given; many steps, and one step."""
_GRADIENTS = ("parameter_gradient", "input_gradient")
"""The gradients that a call gives back: to its caller, and to the parameters that it holds."""
_OF_SIZE = ("other_shape", "beside_other_shape")
"""Kinds of evidence that a layer is of another size, and that one of its parameters is not."""
_KINDS = (*_OF_SIZE, "no_counterpart", "before_any_run")
"""Kinds of the evidence on which findings rest that are folded, each kind by itself."""


@attrs.frozen
class Block:
    """Findings that a reader gets at once: of one line of code, of one setting, or many of one kind."""

    findings: Sequence[Finding]
    numbers: Sequence[int]
    """The numbers of its sources: one of what has one cause or differs wherever its lines run, else one for each place,
    in whatever steps."""
    fold: bool = False
    """Whether these are many faults of one kind, which are listed, not each shown."""


def blocks_of(report: Report) -> list[Block]:
    """Return the blocks that a report's sources make, numbered; those of many of one kind come first."""
    alone, folds = _grouped(report.sources), []
    for kind in _KINDS:
        found = [group for group in alone if trouble(group[0][0]) == kind]
        if len(found) > _FEW:
            alone = [group for group in alone if group not in found]
            folds.append([piece for group in found for piece in group])
    ran = _ran(report)
    blocks: list[Block] = []
    for group in [*folds, *alone]:
        start, fold = count_of(blocks) + 1, len(blocks) < len(folds)
        one = fold or _is_set(group[0][0]) or _is_of_a_line(group[0]) or _wherever_they_run(group, ran)
        count = 1 if one else len({(piece[0].reference.path, piece[0].candidate.path) for piece in group})
        blocks.append(Block([one for piece in group for one in piece], range(start, start + count), fold))
    return blocks


def count_of(blocks: Sequence[Block]) -> int:
    """Return how many sources some blocks hold."""
    return sum(len(block.numbers) for block in blocks)


def _is_set(source: Finding) -> bool:
    """Return whether a source is of what is said once: a setting, or how a forward moves weights (an average)."""
    given = source.phase is Phase.PARAMETER and source.is_caused_by(*_SPREAD)
    return given or (
        (source.is_caused_by(*_SETTINGS) or source.what.kind == "rewritten_weight") and not trouble(source)
    )


def _is_of_a_line(piece: Sequence[Finding]) -> bool:
    known = [(one.candidate.location, one.cause) for one in piece if one.cause is not None]
    return bool(known) and all(location and _is_of_code(cause) for location, cause in known)


def _is_of_code(cause: Cause) -> bool:
    """Return whether a cause is the line's own: nothing that a block may hold, as another number of the candidate's is.

    So are the same arguments in another order, on what lies otherwise, or fewer of them: the line gives none there.
    """
    told = cause.parameters
    if cause.name == "several":
        return all(map(_is_of_code, told["causes"]))
    if cause.name == "arguments":
        return not _apart(cause)[1]
    said = "" if cause.name == "code_alone" and told["side"] == SIDES[0] else str(cause)
    return cause.name in _OF_CODE and not _NUMBER.search(str(told[SIDES[1]]) if cause.name == "code" else said)


def _apart(cause: Cause) -> list[tuple[str, ...]]:
    """Return what the arguments of one side say that those of the other do not, whatever the shapes."""
    ours, theirs = (Counter(_SAID.findall(_SHAPE.sub("", str(cause.parameters[side])))) for side in SIDES)
    return [tuple(sorted(one.elements())) for one in (ours - theirs, theirs - ours)]


def _told(cause: Cause) -> frozenset[str]:
    """Return what a cause says of the code, whatever shapes and sizes it is given."""
    if cause.name == "several":
        return frozenset().union(*map(_told, cause.parameters["causes"]))
    return frozenset((str(_apart(cause)) if cause.name == "arguments" else _SHAPE.sub("", str(cause)),))


def _ran(report: Report) -> list[dict[_Paths, float]]:
    """Return, of each piece of the candidate's code, where it ran, and by how much such a call differs at least.

    What the candidate alone calls was compared with the code around it: such calls have one path. Where each call was
    fed, only sources differ.
    """
    found: dict[object, dict[_Paths, float]] = {}
    for call in report.calls:
        if call.candidate is not None:
            code = call.candidate.class_name, call.candidate.location
            path = None if call.reference is None else call.reference.path, call.candidate.path
            error = 0.0 if call.forced is None or report.recorded is None else call.forced.rel_l2
            known = found.setdefault(code, {})
            known[path] = min(known.get(path, math.inf), error)
    return list(found.values())


def _wherever_they_run(group: Sequence[Sequence[Finding]], ran: Sequence[Mapping[_Paths, float]]) -> bool:
    """Return whether the same lines of code differ in every call that was compared: the lines are it, one fault.

    Where they differ in some calls alone, what these calls hold is it: a fault of its own in each. Where they call
    several layers by other names, each of these is judged by itself. Behind a source (of recorded runs) nobody knows of
    a call whether its code is right that differs by about as much.
    """
    first = group[0][0]
    alone = {theirs for paths in ran for ours, theirs in paths if ours is None}
    found = [one for piece in group for one in piece]
    wrong = {(None if one.candidate.path in alone else one.reference.path, one.candidate.path) for one in found}
    names = set(map(_names, wrong))
    known = [{one: paths[one] for one in paths if _names(one) in names} for paths in ran if paths.keys() & wrong]
    if first.cause is None and (not known or first.phase not in (Phase.FORWARD, Phase.BACKWARD)):
        return False  # values that nobody loaded
    least = min((one.figures.rel_l2 for one in found if one.figures is not None), default=math.inf)
    return all(one in wrong or not FLOORS * error < least for paths in known for one, error in paths.items())


def _names(paths: _Paths) -> tuple[str, ...]:
    """Return the names of modules where they lie, those of repeated blocks as one."""
    return tuple(words.repeated(last(path or "")) for path in paths)


def _grouped(sources: Sequence[Finding]) -> list[list[list[Finding]]]:
    """Put sources together that are one fault: the same lines of code on both sides, or one setting.

    What a call makes at a line that is known to be wrong in another call of that code is so for the same cause.
    """
    groups: dict[object, list[list[Finding]]] = {}
    known: dict[object, object] = {}
    left_out: dict[object, object] = {}
    pieces = _pieces(sources)
    wrong = {_own_line(one): _lines(piece) for piece in pieces if _is_of_a_line(piece) for one in piece}
    for number, piece in enumerate(pieces):
        key: object = number
        if _is_set(piece[0]):
            kind = _ONE_AS.get(piece[0].what.kind, piece[0].what.kind)
            told = piece[0].cause
            if told is not None and told.name in _WHATEVER_NAMES:
                told = attrs.evolve(told, parameters={**told.parameters, "name": ""})
            key = (piece[0].phase, kind, piece[0].verdict, told)
        elif _is_of_a_line(piece):
            key = _lines(piece)
            if all(_is_left_out(one.cause) for one in piece):
                key = left_out.setdefault(_of_reference(piece[0]), key)
        elif all(one.cause is None and _wrong_within(one, wrong) for one in piece):
            key = _wrong_within(piece[0], wrong)
        elif all(one.cause is not None or (one.reference.location and one.candidate.location) for one in piece):
            # A call may show more of what is wrong than another.
            codes = [
                code
                for one in piece
                for code in ((_code(one), *_numbers(one)) if one.cause else (_code(one), _of_reference(one)))
            ]
            key = next((known[code] for code in codes if code in known), number)
            known = dict.fromkeys(codes, key) | known
        groups.setdefault(key, []).append(piece)
    for group in groups.values():
        group.sort(key=lambda piece: all(one.cause is None for one in piece))
    return list(groups.values())


def _is_left_out(cause: Cause | None) -> bool:
    """Return whether a cause is what the reference's code alone does: no line of the candidate's says it."""
    return cause is not None and cause.name == "code_alone" and cause.parameters["side"] == SIDES[0]


def _of_reference(source: Finding) -> object:
    """Return which line of the reference's a source is of, for which value of the candidate's calls of one class.

    The same is left out there, whichever of its lines hands the value on in one of these calls.
    """
    told = None if source.cause is None else _told(source.cause)
    both = (source.reference.class_name, source.candidate.class_name)
    return (source.phase, source.verdict, told, both, _what(source), source.reference.location)


def _wrong_within(source: Finding, wrong: Mapping[tuple[object, str], object]) -> object:
    """Return the lines known to be wrong of which one lies where a source arises; None where none is known to."""
    line, of_class = _own_line(source)
    if (line, of_class) in wrong and source.between is not None:
        return wrong[line, of_class]
    places = (attrs.evolve(source.candidate, location=one) for one in _span(source))
    near = (attrs.evolve(source, candidate=one) for one in places)
    return next((wrong[key] for key in map(_own_line, near) if key in wrong), None)


def _span(source: Finding) -> list[str]:
    """Return the lines of the candidate's in which what no cause is known of arises, as far as these are known."""
    spans = (one.figures[SIDES[1]] for one in source.evidence if one.kind == "between_lines")
    first, last = next(((span[0], span[-1]) for span in spans), ("", ""))
    (file, _, start), (_, _, end) = first.rpartition(":"), last.rpartition(":")
    return [f"{file}:{number}" for number in range(int(start), int(end) + 1)] if start and end else []


def _lines(piece: Sequence[Finding]) -> frozenset[object]:
    """Return the lines that are wrong: in another call the cause of the same may have another name."""
    return frozenset(_line(one) for one in piece if one.cause is not None)


def _own_line(source: Finding) -> tuple[object, str]:
    """Return the line of the candidate's that is wrong, and the class whose code calls it."""
    return _line(source), source.candidate.class_name


def _line(source: Finding) -> object:
    """Return the line of the candidate's that is wrong."""
    return source.phase, source.verdict, source.candidate.location


def _code(source: Finding) -> object:
    """Return the code that is wrong: the candidate's, if it has some: a framework's layer lies where it is called.

    A line of a function that several modules call is one, whatever they do with what it gives, and whatever else it
    says in each call beside what differs (the size of an image).
    """
    side = source.reference if source.candidate.path is None else source.candidate
    own = source.cause is not None and (source.between is not None or source.cause.name in (*_OF_CODE, "arguments"))
    around = None if own else (side.class_name, _what(source))
    told = None if source.cause is None else _told(source.cause)
    return (source.phase, source.verdict, told, around, side.location)


def _numbers(source: Finding) -> Iterator[object]:
    """Yield what the candidate's line alone says with numbers: in another call the reference may do more at once."""
    causes = [] if source.cause is None else source.cause.parameters.get("causes", [source.cause])
    for told in (cause.parameters for cause in causes if cause.name in ("code", "code_alone")):
        ours, theirs = (str(told.get(side, told["called"] if told.get("side") == side else "")) for side in SIDES)
        said = {*_OPERATION.findall(theirs)} - {*_OPERATION.findall(ours)}
        yield from ((_line(source), one) for one in sorted(said) if _NUMBER.search(one))


def _what(source: Finding) -> object:
    return attrs.astuple(source.what)[:-1], re.sub(r"\d+", "*", source.what.taker)  # wherever in a list


def _pieces(sources: Sequence[Finding]) -> list[list[Finding]]:
    """Put together what is one piece: a layer that one side alone has, the own code of one call, its gradients.

    So is what fits, and has no counterpart since another parameter of its layer does not. What one side packs has no
    call of its own on the other: it is in the code around it there.
    """
    pieces: list[list[Finding]] = []
    known: dict[object, list[list[Finding]]] = {}
    for source in sources:
        own = source.between is not None or (source.cause is None and source.what.kind in _GRADIENTS)
        sides = [(number, side.path, side.call) for number, side in enumerate((source.reference, source.candidate))]
        lacking = source.is_caused_by("missing_module") or trouble(source) in _OF_SIZE
        places = sides if own else [tuple(sides)] if lacking else []
        keys = [(source.phase, source.step, place) for place in places]
        joins = [] if trouble(source) == _OF_SIZE[0] else [piece for key in keys for piece in known.get(key, ())]
        piece: list[Finding] = next((one for one in joins if not own or _has_no_other_cause(one, source)), [])
        if not piece:
            pieces.append(piece)
        piece.append(source)
        for key in keys:
            known.setdefault(key, []).append(piece)
    for piece in pieces:  # where it arises, then what else shows it
        piece.sort(key=lambda one: (one.between is None, trouble(one) == _OF_SIZE[1]))
    return pieces


def _has_no_other_cause(piece: Sequence[Finding], source: Finding) -> bool:
    """Return whether a source may be of a piece: what no cause is known of may have that of what is beside it.

    It has not that of a line which none of its own lines is.
    """
    both = [*piece, source]
    lines = {one.candidate.location for one in both if one.cause is not None}
    if lines and any(span and lines.isdisjoint(span) for span in (_span(one) for one in both if one.cause is None)):
        return False
    return _has_one_cause(piece, source)


def _has_one_cause(piece: Sequence[Finding], source: Finding) -> bool:
    """Return whether all causes that are known of a piece and a source are one.

    Of operations that one side alone calls those behind the first may be what it does with what these give. One value
    in another's place is one cause, whatever takes it. A line that runs several times in a call says each time what its
    round is given.
    """
    rounds = {(one.candidate.location, _rounds(one)) for one in (*piece, source)}
    if len({line for line, _ in rounds}) == 1 and len(rounds) == len(piece) + 1 and all(which for _, which in rounds):
        return True
    causes = {one.cause for one in (*piece, source) if one.cause is not None}
    if {one.name for one in causes} == {"taken"}:
        ours, theirs = ({_MODULE.sub("_", one.parameters[side]) for one in causes} for side in SIDES)
        same = len({tuple(one.parameters[side] for side in SIDES) for one in causes}) == 1  # whatever takes it
        return same or (ours == theirs and len(ours) > 1)  # these are in each other's place
    if {one.name for one in causes} != {"code_alone"}:
        return len(causes) <= 1
    called = sorted((one.parameters["called"] for one in causes), key=len)
    return len({one.parameters["side"] for one in causes}) == 1 and all(
        longer[: len(one)] == one for one, longer in itertools.pairwise(called)
    )


def _rounds(source: Finding) -> tuple[int, ...]:
    """Return in which of the times that its line runs a source arises, where it runs several times."""
    return next((tuple(one.figures["which"]) for one in source.evidence if one.kind == "rounds"), ())


def trouble(finding: Finding) -> str:
    """Return the kind of trouble with a parameter of which many findings are one block; else nothing."""
    if finding.phase is not Phase.PARAMETER or finding.verdict not in (Verdict.UNMATCHED, Verdict.DIFFERS):
        return ""
    kind = finding.evidence[0].kind if finding.evidence else ""
    return kind if kind in _KINDS else ""
