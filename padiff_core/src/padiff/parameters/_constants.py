"""Match buffers and frozen parameters that no rule speaks of, and tell state from constants.

State is what training leaves: a forward writes it, or the two models hold numbers that have nothing to do with each
other, since each drew its own (a codebook). It is copied as parameters are. A constant both models compute from their
settings (the frequencies of a rotary embedding): a wrong one still goes together with the right one, and a transfer
must not hide it.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

import attrs
import numpy as np

from padiff.alignment import namesakes
from padiff.grouping import grouped
from padiff.numerics import NEGLIGIBLE, Array, difference, epsilon, in_reals, is_coarse, is_suspect
from padiff.parameters._correspondence import Correspondence
from padiff.parameters._links import Link, canonical
from padiff.parameters._pieces import Match
from padiff.parameters._roles import UnitMatch
from padiff.parameters._shapes import bare
from padiff.parameters._stacks import in_places
from padiff.parameters._units import Held, HeldUnit, Native, Units
from padiff.paths import is_at, upwards
from padiff.trace import Description, ParameterRecord

_FEWEST = 8
"""Numbers that tell whether they have to do with others: fewer may go together by chance."""
_SAMPLE = 1024
"""Numbers among which some are looked for that come up again."""
_SIGMAS = 5
"""Standard deviations beyond which a correlation is no chance: that happens once in two million pairs."""


def buffers_of(model: Description, units: Units) -> list[HeldUnit]:
    """Return each buffer that no unit lists as a unit of its own; a count of a module that a rule knows is none."""
    listed = {
        path for unit in units for one in (unit.roles, unit.extras) for held in one.values()
        for path in held.parameter.paths
    }  # fmt: skip
    found = []
    for parameter in model.parameters.values():
        owner, _, name = parameter.path.rpartition(".")
        about = model.modules.get(owner)
        if about is None or not parameter.buffer or parameter.path in listed:
            continue
        if about.module.kind is None or not _counts(parameter):
            found.append(HeldUnit.of_one(about.module, name, parameter))
    return found


def with_buffers(
    known: Correspondence,
    models: tuple[Description, Description],
    read: tuple[Native, Native] | None,
    is_state: Callable[[Held, Held], bool],
    match: Match | None,
    later: tuple[Native, Native] | None = None,
) -> Correspondence:
    """Return the correspondence with buffers matched: equal ones first, then by dataflow (``match``), name, and shape.

    By shape those go first that lie beside parameters that belong together, then what one side stacks. What
    ``is_state`` names, and what is independent of the other side's, is matched as parameters are; what is left are the
    correspondence's constants.
    Where nothing ``read``s values these tell nothing; of equal ones those go first that a run leaves equal (``later``).
    """
    ours, theirs, fits = _free_buffers(known, models)
    values: dict[HeldUnit, Array] = {}
    for pair in fits:
        for unit, side in zip(pair, read or (), strict=False):
            if unit not in values:
                values[unit] = _value(unit, side)
    pairs: dict[HeldUnit, HeldUnit] = {}
    taken: set[HeldUnit] = set()

    def turned(one: HeldUnit, other: HeldUnit) -> Array:
        return fits[one, other].to_candidate(values[one])

    def take(holds: Callable[[HeldUnit, HeldUnit], bool]) -> None:
        for one, other in fits:
            if one not in pairs and other not in taken and holds(one, other):
                pairs[one] = other
                taken.add(other)

    def take_single(near: Sequence[tuple[HeldUnit, HeldUnit]]) -> None:
        seen = Counter(unit for pair in near if pair[0] not in pairs and pair[1] not in taken for unit in pair)
        single = {pair for pair in near if seen[pair[0]] == seen[pair[1]] == 1}
        take(lambda one, other: (one, other) in single)

    if read is not None and later is not None:
        left = {unit: _value(unit, side) for pair in fits for unit, side in zip(pair, later, strict=True)}
        take(
            lambda one, other: (
                is_alike(turned(one, other), values[other])
                and is_alike(fits[one, other].to_candidate(left[one]), left[other])
            )
        )
    if read is not None:
        take(lambda one, other: is_alike(turned(one, other), values[other]))
    some, others = (
        [unit for unit in units if unit in values and unit not in {*pairs, *taken}] for units in (ours, theirs)
    )
    if match is not None and some and others:
        whole = {one.reference: one.candidate for one in known.one_to_one}
        found = match([*whole, *some], [*whole.values(), *others], whole, {})
        take(lambda one, other: found.get(one) is other)
    take(lambda one, other: one.path == other.path and [*one.roles] == [*other.roles])
    rest = [(one, other) for one, other in fits if one not in pairs and other not in taken]
    homes = _homes(known, rest)
    near = [pair for pair in rest if not homes[pair[0]].isdisjoint(homes[pair[1]])]
    take_single(near)
    named = set(_named_alike(near, homes))
    take(lambda one, other: (one, other) in named)
    take_single(rest)
    some, others = ([unit for unit in units if unit not in {*pairs, *taken}] for units in (ours, theirs))
    for one, other in (*((a, b) for b, a in in_places(some, others)), *in_places(others, some)):
        link = _link(one, other)
        if link is not None:
            pairs[one], fits[one, other] = other, link
            values |= {unit: _value(unit, side) for unit, side in zip((one, other), read or (), strict=False)}
    state: list[UnitMatch] = []
    constants: list[UnitMatch] = []
    ruled = {held for units in known.sides for unit in units if unit.kind is not None for held in unit.roles.values()}
    iterated = _of_power_iterations(pairs, values, models[0]) if read else set()
    for one, other in pairs.items():
        link = fits[one, other]
        own = one in iterated or (read is not None and _is_independent(turned(one, other), values[other]))
        own = own or is_state(link.reference, link.candidate) or all(map(_is_power_vector, link.ends))
        own = own or not ruled.isdisjoint(link.ends)
        (state if own else constants).append(UnitMatch(one, other, [link]))
    return attrs.evolve(known, matches=[*known.matches, *state], constants=constants)


def _homes(known: Correspondence, fits: Sequence[tuple[HeldUnit, HeldUnit]]) -> dict[HeldUnit, frozenset[int]]:
    """Return the links of the parameters in the nearest module around each buffer that holds any that are linked."""
    links = [link for _, link in known.links]
    paths = [[held.parameter.path for held in link.references] for link in links]
    sides = paths, [[link.candidate.parameter.path] for link in links]
    units = [
        dict.fromkeys(pair[side] for pair in fits) for side in (0, 1)
    ]  # each once: all of one shape fit each other
    return {unit: _home(unit.module.path, some) for ones, some in zip(units, sides, strict=True) for unit in ones}


def _home(path: str, linked: Sequence[Sequence[str]]) -> frozenset[int]:
    tops = (
        frozenset(i for i, some in enumerate(linked) if any(is_at(one, top) for one in some)) for top in upwards(path)
    )
    return next(filter(None, tops), frozenset())


def _named_alike(
    near: Sequence[tuple[HeldUnit, HeldUnit]], homes: Mapping[HeldUnit, frozenset[int]]
) -> Iterator[tuple[HeldUnit, HeldUnit]]:
    """Yield those beside the same parameters of which names, without the path, say the same beyond doubt."""
    for home in dict.fromkeys(homes[one] for one, _ in near):
        some = [pair for pair in near if homes[pair[0]] == home]
        ours, theirs = ([*dict.fromkeys(units)] for units in zip(*some, strict=True))
        names = ([role for unit in units for role in unit.roles] for units in (ours, theirs))
        found = {ours[row]: theirs[column] for row, column in namesakes(*names).items()}
        yield from (pair for pair in some if found.get(pair[0]) is pair[1])


def _free_buffers(
    known: Correspondence, models: tuple[Description, Description]
) -> tuple[list[HeldUnit], list[HeldUnit], dict[tuple[HeldUnit, HeldUnit], Link]]:
    """Return what no rule speaks of on either side, and the links of those of these that fit each other."""
    ours, theirs = (
        [unit for unit in (*_loose(units), *buffers_of(model, units)) if unit.paths.isdisjoint(taken)]
        for units, model, taken in zip(known.sides, models, known.linked, strict=True)
    )
    links = {(one, other): _link(one, other) for one in ours for other in theirs}
    return ours, theirs, {both: link for both, link in links.items() if link is not None}


def is_alike(ours: Array, theirs: Array) -> bool:
    """Return whether two arrays are equal but for rounding."""
    narrower = theirs if theirs.dtype.itemsize <= ours.dtype.itemsize else ours
    return not is_suspect(difference(ours, theirs), narrower.dtype)


def _loose(units: Units) -> Iterator[HeldUnit]:
    """Yield parameters that no rule speaks of, and statistics, which may lie apart from their norm."""
    for unit in units:
        for name, held in unit.roles.items():
            if unit.loose or (held.parameter.buffer and held.part.permuted and not unit.stack):
                yield HeldUnit(unit.module, "", None, {name: held})


def _value(unit: HeldUnit, read: Native) -> Array:
    (held,) = unit.roles.values()
    value = read(held.parameter)
    assert value is not None
    return canonical(held, value)


def _link(one: HeldUnit, other: HeldUnit) -> Link | None:
    """Return the link of two units of one parameter each, of which one is a buffer; None where they do not fit."""
    ((role, ours),), ((_, theirs),) = one.roles.items(), other.roles.items()
    counts = [_counts(held.parameter) for held in (ours, theirs)]
    if not (ours.parameter.buffer or theirs.parameter.buffer) or counts[0] != counts[1]:
        return None
    alike = bare(ours.shape) == bare(theirs.shape)
    turned = not alike and len(ours.shape) == 2 and ours.shape[::-1] == theirs.shape
    return Link(role, ours, theirs, (1, 0) if turned else ()) if turned or alike else None


def _is_power_vector(held: Held) -> bool:
    """Return whether a buffer holds what the power iteration of spectral norm goes on from: u or v of a weight."""
    return held.parameter.buffer and len(held.shape) == 1 and held.parameter.path.endswith(("_u", "_v"))


def _of_power_iterations(
    pairs: Mapping[HeldUnit, HeldUnit], values: Mapping[HeldUnit, Array], model: Description
) -> set[HeldUnit]:
    """Return what spectral norms of the reference go on from, whatever its name: two vectors beside a matrix.

    Each is of length one, and both have, multiplied, as many numbers as the matrix. A candidate that has not run yet
    may hold them as they were drawn.
    """
    vectors = (one for one in pairs if _is_direction(values[one]))
    found: set[HeldUnit] = set()
    for path, units in grouped(vectors, lambda one: one.module.path).items():
        sizes = _sizes_around(path, model)
        for both in itertools.combinations(units, 2):
            found.update(both if math.prod(values[one].size for one in both) in sizes else ())
    return found


def _is_direction(array: Array) -> bool:
    """Return whether an array is of length one, but for rounding."""
    norm = np.asarray(np.linalg.norm(in_reals(array)))
    return array.dtype.kind not in "iubc" and is_alike(norm.astype(array.dtype), np.ones((), array.dtype))


def _sizes_around(path: str, model: Description) -> set[int]:
    """Return the sizes of the matrices in a module, or in the next around it that holds any."""
    matrices = [one for one in model.parameters.values() if len(one.shape) > 1 and not one.buffer]
    tops = ({math.prod(one.shape) for one in matrices if is_at(one.path, top)} for top in upwards(path))
    return next(filter(None, tops), set())


def _counts(parameter: ParameterRecord) -> bool:
    return parameter.dtype.lstrip("u").startswith("int")


def _is_independent(ours: Array, theirs: Array) -> bool:
    """Return whether what two models hold has nothing to do with each other: each has its own random numbers.

    The candidate may also hold nothing yet: zeros or ones.
    """
    a, b = (in_reals(array) for array in (ours, theirs))
    if a.size < _FEWEST or not (np.isfinite(a).all() and np.isfinite(b).all()):
        return False
    if any(_is_pattern(array) or _repeats(array, epsilon(kept.dtype)) for array, kept in ((a, ours), (b, theirs))):
        return False
    if np.ptp(b) == 0:
        return bool(b.flat[0] in (0, 1))
    if is_alike(np.sort(ours, axis=None), np.sort(theirs, axis=None)):
        return False  # the same numbers in another order
    ranks = (np.argsort(np.argsort(array, axis=None)) for array in (a, b))
    return not (_go_together(a, b) or _go_together(*ranks))


def _is_pattern(array: Array) -> bool:
    """Return whether neighbours along an axis go together, as in what code makes of indices."""
    neighbours = ((array.take(range(n - 1), axis), array.take(range(1, n), axis)) for axis, n in enumerate(array.shape))
    return bool(np.ptp(array)) and any(_go_together(*both) for both in neighbours)


def _repeats(array: Array, eps: float) -> bool:
    """Return whether most fractions come up again, but for sign and rounding: sines of indices do, and no chance.

    Whole numbers may be drawn, and signs that one number scales.
    """
    fractions = np.abs(array[array != np.round(array)])
    fractions = np.sort(fractions[:: math.ceil(fractions.size / _SAMPLE) or 1])
    if fractions.size < _FEWEST or is_coarse(eps):
        return False
    steps = np.diff(fractions) > NEGLIGIBLE(eps) * fractions[-1]
    first, last = np.append(True, steps), np.append(steps, True)
    return bool(steps.any() and np.mean(first & last) < 0.5)


def _go_together(a: Array, b: Array) -> bool:
    """Return whether two arrays are correlated beyond chance (Fisher's z), or one does not vary."""
    if a.size < _FEWEST:
        return False
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return True
    r = min(abs(float(np.corrcoef(a.ravel(), b.ravel())[0, 1])), 1.0)
    with np.errstate(divide="ignore"):
        return bool(np.arctanh(r) * np.sqrt(a.size - 3) > _SIGMAS)
