"""Note what had no effect on the verdict: calls that cannot be fed, settings that differ, calls left over."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set

from padiff.alignment import Alignment, Pair, first_step, namesakes, orders_within, unwrapped
from padiff.forcing import Side
from padiff.grouping import grouped
from padiff.judging._ends import cache_notes
from padiff.judging._extra_calls import extra_calls
from padiff.judging._findings import finding_of, place_of
from padiff.judging._suspicion import Suspicion
from padiff.kinds import CATALOGUE, LAYOUT
from padiff.numerics import epsilon_of
from padiff.parameters import Correspondence, ways_between
from padiff.paths import parent
from padiff.report import SIDES, Finding, Note, Verdict
from padiff.trace import Description, Leaf, Trace, contrasts

_NUMBER = re.compile(r"(\d+)")


def axis_notes(known: Correspondence) -> Iterator[Note]:
    """Yield notes on the orders in which the candidate's values are read, and the modules whose they are."""
    orders: dict[tuple[int, ...], dict[str, None]] = {}
    rows: dict[str, None] = {}
    of_parameters = {order for whole in known.row_orders for order in orders_within(whole)}
    for (path, ordinal, *_), order in known.axes.items():
        if known.alignment.of_key((path, ordinal)) is None:
            continue
        if order.axes != tuple(range(len(order.axes))):
            orders.setdefault(order.axes, {})[path] = None
        if order.rows and order.rows not in of_parameters:
            rows[path] = None
    if rows:
        yield Note("row_order", {"modules": list(rows)})
    if not orders:
        return
    told = [{"axes": list(axes), "modules": list(paths)} for axes, paths in orders.items()]
    turned = {path for paths in orders.values() for path in paths}
    kinds = {pair.candidate.module.kind for pair in known.alignment.pairs if pair.candidate.path in turned}
    images = any(kind is not None and LAYOUT in CATALOGUE[kind].settings for kind in kinds)
    yield Note("axis_order", {"orders": told, "images": images})


def reordered_notes(known: Correspondence) -> Iterator[Note]:
    """Yield which parameters hold the reference's rows in another order, with which the candidate's code goes."""
    held = [link.candidate.parameter.path for _, link in known.links if link.orders]
    if held:
        yield Note("reordered", {"parameters": list(dict.fromkeys(held))})


def carried_notes(known: Correspondence) -> Iterator[Note]:
    """Yield which calls hand on sums that nothing shows: each alone gives another number than the reference's."""
    if known.carried:
        yield Note("carried", {"modules": list(known.carried)})


def merged_notes(known: Correspondence, *, as_given: bool) -> Iterator[Note]:
    """Yield which parameters make the same together, none of which has an equal; and that nothing was copied."""
    ours, theirs = map(sorted, known.merged)
    if ours or theirs:
        yield Note("merged", {"reference": ours, "candidate": theirs})
    if as_given:
        yield Note("as_given")


def notes_of(alignment: Alignment, found: Sequence[Finding], compared: Set[int] | None = None) -> Iterator[Note]:
    """Yield the notes of one step's matched calls; ``found`` are its findings.

    ``compared`` are the tokens of the reference whose values were, where not all were kept.
    """
    yield from _moved(alignment.pairs[0])
    yield from cache_notes(alignment.pairs[0])
    yield from _not_fed(alignment, found)
    yield from _settings(alignment, found, compared)
    yield from _left_over(alignment)


def tf32_notes(sides: tuple[Description, Description], found: Sequence[Finding]) -> Iterator[Note]:
    """Yield which side's device rounds the factors of float32 products, where values differ by precision alone."""
    if any(one.verdict is Verdict.PRECISION for one in found):
        for name, side in zip(SIDES, sides, strict=True):
            what = side.environment.get("tf32")
            if what and side.device != "cpu":
                yield Note("tf32", {"side": name, "device": side.device, "what": what})


def _moved(root: Pair) -> Iterator[Note]:
    """Yield the outputs that are compared with those at another position: one of both sides', or out of order."""
    ours, theirs = ([leaf.path for leaf in call.outputs] for call in (root.reference, root.candidate))
    alike = sorted(ours) == sorted(theirs)
    for (i, j), (mine, yours) in zip(root.outputs, root.made, strict=True):
        crossed = any((i < a) is not (j < b) for a, b in root.outputs if a != i)
        if mine.path != yours.path and (alike or (crossed and first_step(mine.path) != first_step(yours.path))):
            yield Note("moved_output", {"reference": mine.path, "candidate": yours.path})


def _not_fed(alignment: Alignment, found: Sequence[Finding]) -> Iterator[Note]:
    """Yield one note on the calls that take a value of another shape and so could not be fed."""
    calls = list(dict.fromkeys(pair.candidate.path for pair in alignment.pairs if pair.misfed))
    if calls:
        yield Note("not_fed", {"calls": calls, "sources": any(finding.source for finding in found)})


def _settings(alignment: Alignment, found: Sequence[Finding], compared: Set[int] | None) -> Iterator[Note]:
    """Yield hyper-parameters that differ without effect, or of which none would show, or of what was not compared."""
    named = {f.candidate.path for f in found}
    hidden = any(
        epsilon_of(ours.dtype) != epsilon_of(theirs.dtype) for one in alignment.pairs for ours, theirs in one.made
    )
    for pair in alignment.pairs:
        if pair.candidate.path in named or pair.apart:
            continue
        seen = compared is None or any(ours.token in compared for ours, _ in pair.made)
        kind = ("setting_hidden" if hidden and compared is not None else "setting") if seen else "setting_unseen"
        kind = "setting_unfit" if pair.misfits else kind
        for one in contrasts(pair.reference, pair.candidate):
            data = {"name": one.setting, "reference": one.reference, "candidate": one.candidate}
            yield Note(kind, data, place_of(pair.reference), place_of(pair.candidate))


def _left_over(alignment: Alignment) -> Iterator[Note]:
    """Yield the calls without counterpart; the calls around them agree, or are findings."""
    extra = {inner for _, call in extra_calls(alignment) for inner in call.subtree()}
    for side, calls in (("reference", alignment.left_reference), ("candidate", alignment.left_candidate)):
        for call in (one for one in calls if not (one.module.operation or one in extra or alignment.is_inside(one))):
            place = place_of(call)
            yield Note("one_side_call", {"side": side}, **{side: place})


def naming_notes(known: Correspondence) -> Iterator[Note]:
    """Yield one note on what is matched with a sibling of that whose name says the same beyond doubt, and fits.

    And one on each module whose code would be right if they were.
    """
    named = {
        (match.reference.name_of(link.reference), match.candidate.name_of(link.candidate)): link
        for match, link in known.links
        if link.single
    }
    links, (ours, theirs) = [*named.values()], zip(*named, strict=True) if named else ((), ())
    parents = [parent(path) for path in unwrapped(theirs)]
    crossed = [
        (ours[i], theirs[i], theirs[j])
        for i, j in {**_same_paths(ours, theirs), **namesakes(ours, theirs)}.items()
        if i != j and parents[i] == parents[j] and ways_between("", links[i].reference, links[j].candidate)
    ]
    if crossed:
        yield Note("against_names", {"matches": crossed})
    told = {name for name, _, _ in crossed}
    unlike = [
        (ours[i], theirs[i], theirs[j])
        for i, j in _as_in_other_blocks(ours, theirs).items()
        if ours[i] not in told and ways_between("", links[i].reference, links[j].candidate)
    ]
    if unlike:
        yield Note("against_other_blocks", {"matches": unlike})
    for path, steps in known.crossed.items():
        yield Note("crossed_names", {"module": path, "matches": list(map(list, steps))})


def _same_paths(ours: Sequence[str], theirs: Sequence[str]) -> dict[int, int]:
    """Return for each name the same one of the other side, where those of one parent are the same: a list's numbers."""
    groups = grouped(range(len(ours)), lambda i: parent(ours[i])).values()
    alike = (group for group in groups if sorted(ours[i] for i in group) == sorted(theirs[i] for i in group))
    return {i: next(j for j in group if theirs[j] == ours[i]) for group in alike for i in group}


def _as_in_other_blocks(ours: Sequence[str], theirs: Sequence[str]) -> dict[int, int]:
    """Return which other name each one would have, were it matched as most of its like are, those in other blocks.

    Only where such names are in each other's place. Blocks are told by the numbers in the names of our side.
    """
    families = grouped(range(len(ours)), lambda i: _NUMBER.sub("", ours[i]))
    words = list(map(_NUMBER.split, theirs))
    places = {name: j for j, name in enumerate(theirs)}
    found: dict[int, int] = {}
    for family in families.values():
        length, count = Counter(len(words[i]) for i in family).most_common(1)[0]
        alike = [i for i in family if len(words[i]) == length]
        usual = [Counter(some).most_common(1)[0] for some in zip(*(words[i] for i in alike), strict=True)]
        named = {
            i: "".join(word if 2 * times > count else own for own, (word, times) in zip(words[i], usual, strict=True))
            for i in alike
        }
        found.update({i: places[name] for i, name in named.items() if name != theirs[i] and name in places})
    return {i: j for i, j in found.items() if j in found}


def unregistered_notes(sides: tuple[Side, Side]) -> Iterator[Note]:
    """Yield one note on each side that holds modules where its framework does not see them."""
    for name, side in zip(SIDES, sides, strict=True):
        if side.about.unregistered:
            yield Note("unregistered", {"side": name, "held": dict(side.about.unregistered)})


Traces = tuple[Trace, Trace]


def other_bytes(alignment: Alignment, traces: Traces) -> Iterator[Note]:
    """Yield the first call that makes other bytes of the same ones: the innermost, and what it holds may differ too."""
    found: Pair | None = None
    for pair in alignment.pairs:
        inside = found is None or found.candidate in pair.candidate.ancestors()
        taken = [same_bytes(traces, *both) for both in pair.taken]
        given = [same_bytes(traces, *both) for both in pair.made]
        if inside and all(taken) and False in given:
            found = pair
    if found is not None:
        yield Note("other_bytes", {"module": found.candidate.path, "class": found.candidate.module.class_name})


def same_bytes(traces: Traces, ours: Leaf, theirs: Leaf) -> bool | None:
    """Return whether two values have one checksum; None where that is not known."""
    keys = (trace.values.get(one.token) for trace, one in zip(traces, (ours, theirs), strict=True))
    known = (trace.summaries.get(key) for trace, key in zip(traces, keys, strict=True) if key is not None)
    sums = [one.checksum for one in known if one is not None and one.checksum is not None]
    return None if len(sums) < 2 else sums[0] == sums[1]


def harmless_note(suspicion: Suspicion, *, hidden: bool = False) -> Note:
    """Write which value differs, where, and that it changes nothing; if partly ``hidden``, with other inputs either."""
    return _note_on("harmless_hidden" if hidden else "harmless", suspicion)


def hidden_note(suspicion: Suspicion) -> Note:
    """Write which value differs, where, and that it does so where nothing reads it alone."""
    return _note_on("hidden_alone", suspicion)


def new_notes(notes: Iterable[Note], known: Sequence[Note]) -> list[Note]:
    """Return the notes on values that were not told already, each once: of a packed layer's parts the one furthest off.

    What was told in a step before differs by another number now.
    """
    told = set(map(_subject, known))
    values = grouped((one for one in notes if _subject(one) not in told), _subject).values()
    return [max(some, key=lambda one: float(one.data["rel_l2"])) for some in values]


def _subject(note: Note) -> object:
    return note.kind, note.data.get("value"), note.candidate


def _note_on(kind: str, suspicion: Suspicion) -> Note:
    finding = finding_of(suspicion, source=False, step=0)
    data = {"value": str(finding.what), "rel_l2": suspicion.ruling.figures.rel_l2}
    return Note(kind, data, finding.reference, finding.candidate)
