"""Say how well two units fit, and which of their roles belong together, in which layout."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import attrs

from padiff.alignment import ModulePair, in_doubt
from padiff.grouping import grouped
from padiff.kinds import CONVOLUTIONS, NORMS, PRODUCTS, SLIDING
from padiff.parameters._links import Link, special_links, with_sums
from padiff.parameters._shapes import Axes, bare, every_order, joined_orders, layouts, transposition
from padiff.parameters._units import Held, HeldUnit
from padiff.trace import settings_of

FULL, _PARTIAL, _RELATED = 1.0, 0.8, 0.5
"""How well units fit: in all roles; in some; in all, but of two kinds of one family."""
_LINEAR = "linear"
_TURNED = {"embedding"} | (SLIDING - CONVOLUTIONS)
_FEW = 4
"""Parameters of one shape of which every order is tried."""


@attrs.frozen(eq=False)
class UnitMatch:
    """A unit of the reference and the unit of the candidate that does the same, with their roles matched."""

    reference: HeldUnit
    candidate: HeldUnit
    links: Sequence[Link]
    beside: str | None = None
    """Of several modules that the other side calls one for: the first of them, which that is matched with as well."""

    @classmethod
    def of(cls, reference: HeldUnit, candidate: HeldUnit, *, beside: str | None = None) -> UnitMatch:
        """Return the match of two units, with those of their roles that belong together as `link_roles` says."""
        return cls(reference, candidate, link_roles(reference, candidate)[1], beside)

    @property
    def units(self) -> tuple[HeldUnit, HeldUnit]:
        """Return both units, the reference's first."""
        return self.reference, self.candidate

    @property
    def ends(self) -> Iterator[Held]:
        """Yield where the values that are linked lie, on both sides."""
        return (held for link in self.links for held in link.ends)

    @property
    def modules(self) -> ModulePair:
        """Return the modules that hold the two."""
        paths = self.reference.module.path, self.candidate.module.path
        return ModulePair(*paths, whole=self.reference.special is not None, beside=self.beside)

    @property
    def unnamed(self) -> list[list[Link]]:
        """Return links that only their order ties, those together of which each may have another's partner.

        Names that say the same beyond doubt tie them, too.
        """
        names = {held: role for role, held in self.candidate.roles.items()}
        links = (x for x in self.links if type(x) is Link and not x.mapped and names.get(x.candidate) != x.role)
        groups = grouped(links, lambda link: (bare(link.reference.shape), bare(link.candidate.shape), link.buffer))
        doubtful = (
            [group[n] for n in in_doubt([x.role for x in group], [names.get(x.candidate, "") for x in group])]
            for group in groups.values()
        )
        return [group for group in doubtful if len(group) > 1]

    def orders(self) -> Iterator[UnitMatch]:
        """Yield the match with such links in other orders: groups of one length alike, then each alone.

        Alike are a cell's gates. Of many each two are exchanged: whoever takes the best order goes on from there.
        """
        groups = self.unnamed
        together = [[group for group in groups if len(group) == length] for length in sorted({*map(len, groups)})]
        alone = [[group] for some in together if len(some) > 1 for group in some]
        for some in (*together, *alone):
            for order in _orders_of(len(some[0])):
                turned = {
                    link: attrs.evolve(link, candidate=group[place].candidate)
                    for group in some
                    for link, place in zip(group, order, strict=True)
                }
                yield attrs.evolve(self, links=[turned.get(link, link) for link in self.links])

    @property
    def missing(self) -> Iterator[tuple[str, Held, bool]]:
        """Yield (role, where it lies, whether it is the reference's) for roles that only one side has."""
        linked = {held for link in self.links for held in (link.reference, link.candidate)}
        for unit, ours in zip(self.units, (True, False), strict=True):
            for role, held in unit.roles.items():
                if held not in linked:
                    yield role, held, ours


def _orders_of(count: int) -> Iterator[tuple[int, ...]]:
    """Yield the other orders of so many: of few all, of more those that differ in two."""
    if count <= _FEW:
        yield from itertools.islice(itertools.permutations(range(count)), 1, None)
        return
    for a, b in itertools.combinations(range(count), 2):
        yield tuple(b if place == a else a if place == b else place for place in range(count))


def link_roles(reference: HeldUnit, candidate: HeldUnit) -> tuple[float, list[Link]]:
    """Return how well two units fit, 0 where they cannot, and the links of their roles.

    Known kinds are tied role by role and shapes must agree exactly, but for a convolution with a kernel of one element:
    it is a linear layer, whatever the number of spatial axes; for any other one, which is a linear layer on each of the
    patches that the other side's code gathers, or makes (a transposed one); for a table of vectors, which is a
    linear layer on ones and zeros; and for a norm over several axes, which may be joined or in another order.
    Where a kind is unknown, roles are tied by name,
    then by shape in order; a matrix may then lie transposed, three axes and more in another order, axes side by side
    may be joined (a projection to heads, kept as ``(in, heads, size)``), and axes of length one (a scale kept as
    ``(c, 1, 1)`` to be broadcast) left out.
    Of stacks, which fit those of their length alone, the links are those of the first.
    """
    if reference.special is not None or candidate.special is not None:
        fits = reference.special is candidate.special
        return (FULL, special_links(reference, candidate)) if fits else (0.0, [])
    if len(reference.stack) != len(candidate.stack):
        return 0.0, []
    known = reference.kind is not None and candidate.kind is not None
    if _LINEAR in (reference.kind, candidate.kind) and {reference.kind, candidate.kind} & _TURNED:
        return _link_turned(reference, candidate)
    if known:
        products = is_product(reference) and is_product(candidate)
        fewer = {reference.kind, candidate.kind} <= CONVOLUTIONS
        same = reference.kind == candidate.kind or products or fewer
        if not same and not {reference.kind, candidate.kind} <= NORMS:
            return 0.0, []
        shared = [role for role in reference.roles if role in candidate.roles]
        shapes = [(reference.roles[role].shape, candidate.roles[role].shape) for role in shared]
        norms = {reference.kind, candidate.kind} <= NORMS
        if not shared or any(
            a != b
            and not (products and _same_product(a, b))
            and not (fewer and _same_kernel(a, b))
            and not (norms and joined_orders(a, b))
            for a, b in shapes
        ):
            return 0.0, []
        whole = len(shared) == len(reference.roles) == len(candidate.roles)
        both = ((role, reference.roles[role], candidate.roles[role]) for role in shared)
        links = [_link_normalised(*one) if norms else _link_known(*one) for one in both]
        if reference.turns or candidate.turns:
            links = [attrs.evolve(link, layouts=((), (1, 0)) if link.role == "weight" else ()) for link in links]
        return (FULL if same and whole else _PARTIAL if same else _RELATED), [*with_sums(links)]
    links = list(_link_freely(reference, candidate))
    if not links or len(links) < min(len(reference.roles), len(candidate.roles)):
        return 0.0, []
    whole = len(links) == len(reference.roles) == len(candidate.roles)
    return (FULL if whole else _PARTIAL), [*with_sums(links)]


def _link_turned(reference: HeldUnit, candidate: HeldUnit) -> tuple[float, list[Link]]:
    """Return how a linear layer fits what has its inputs first: a table of vectors, or a transposed convolution.

    What the linear layer adds, a bias of its own may add behind the table. The patches that a kernel makes may have
    their axes in any order.
    """
    ours, theirs = (unit.roles.get("weight") for unit in (reference, candidate))
    apart = any(settings_of(unit).get("groups", 1) != 1 for unit in (reference, candidate))
    if ours is None or theirs is None or apart:
        return 0.0, []
    orders = [transposition(ours.shape, theirs.shape)]
    if ours.shape != theirs.shape[::-1]:
        kernels = [unit.kind in SLIDING for unit in (reference, candidate)]
        orders = [axes for axes in every_order(ours.shape, theirs.shape) or orders if axes[-1:] == (0,)]
        orders = [axes for axes in orders if _keeps_rows_first(axes, (ours.shape, theirs.shape), kernels)]
    whole = len(reference.roles) == len(candidate.roles) == 1
    return (FULL if whole else _PARTIAL, [Link.of("weight", ours, theirs, orders)]) if orders else (0.0, [])


def _link_known(role: str, reference: Held, candidate: Held) -> Link:
    """Return the link of one role of a known kind; a kernel may lie in a linear layer's weight in several orders."""
    longer = max(reference.shape, candidate.shape, key=len)
    if len(reference.shape) == len(candidate.shape) or _is_point(longer) or _same_kernel(longer, candidate.shape):
        return Link(role, reference, candidate)
    return Link.of(role, reference, candidate, every_order(reference.shape, candidate.shape) or [()])


def _link_normalised(role: str, reference: Held, candidate: Held) -> Link:
    """Return the link of one role of a norm over several axes, which a side may hold joined, and in another order."""
    straight = reference.shape == candidate.shape
    return Link.of(role, reference, candidate, [()] if straight else joined_orders(reference.shape, candidate.shape))


def is_product(unit: HeldUnit) -> bool:
    """Return whether a unit is a linear layer, or a convolution: one at each point, or on gathered patches."""
    return "weight" in unit.roles and unit.kind in PRODUCTS and settings_of(unit).get("groups", 1) == 1


def flat(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of a product's role with the kernel in the second axis: (out, in * 4 * 4) of (out, in, 4, 4)."""
    return (shape[0], math.prod(shape[1:])) if len(shape) > 1 else tuple(shape)


def _is_point(shape: Sequence[int]) -> bool:
    return all(extent == 1 for extent in shape[2:])


def _same_product(reference: Sequence[int], candidate: Sequence[int]) -> bool:
    """Return whether two shapes are of one product: of single points both, or a linear layer's and a kernel's."""
    points = _is_point(reference) and _is_point(candidate)
    return flat(reference) == flat(candidate) and (points or 2 in (len(reference), len(candidate)))


def _same_kernel(reference: Sequence[int], candidate: Sequence[int]) -> bool:
    """Return whether two kernels are one but for axes of one element: (out, in, 1, 3, 3) is (out, in, 3, 3)."""
    a, b = ([extent for extent in shape[2:] if extent != 1] for shape in (reference, candidate))
    return len(reference) != len(candidate) and tuple(reference[:2]) == tuple(candidate[:2]) and a == b


def _link_freely(reference: HeldUnit, candidate: HeldUnit) -> Iterator[Link]:
    fixed = reference.module.class_name == candidate.module.class_name
    kernels = [unit.kind in SLIDING for unit in (reference, candidate)]

    def ways_of(ours: Held, theirs: Held) -> list[Axes]:
        return [
            axes for axes in _ways(ours, theirs, fixed) if _keeps_rows_first(axes, (ours.shape, theirs.shape), kernels)
        ]

    free = dict(candidate.roles)
    rest: list[tuple[str, Held]] = []
    for role, held in reference.roles.items():
        if role in free and (ways := ways_of(held, free[role])):
            yield Link.of(role, held, free.pop(role), ways)
        else:
            rest.append((role, held))
    for role, held in rest:
        fits = {name: ways for name, other in free.items() if (ways := ways_of(held, other))}
        straight = [name for name in fits if free[name].shape == held.shape]
        for name in (straight or [*fits])[:1]:
            yield Link.of(role, held, free.pop(name), fits[name])


def _keeps_rows_first(axes: Axes, shapes: Sequence[Sequence[int]], kernels: Sequence[bool]) -> bool:
    """Return whether an order of axes leaves those that a kernel slides along in order: rows come first everywhere.

    ``kernels`` says which of both shapes is a layer's kernel, of which all axes but the first two are such.
    """
    count = [len(bare(shape)) for shape in shapes]
    for side in (0, 1):
        if kernels[side] and axes and count[side] == len(axes):
            slid = range(len(axes) - len(bare(shapes[side][2:])), len(axes))
            permuted = side == 0 or count[0] < count[1]
            along = [axis for axis in axes if axis in slid] if permuted else [axes[place] for place in slid]
            if along != sorted(along):
                return False
    return True


def ways_between(role: str, reference: Held, candidate: Held) -> list[Link]:
    """Return the links of two parameters that nothing but their shapes ties, one for each layout; none do not fit."""
    ways = _ways(reference, candidate, fixed=False)
    return Link.of(role, reference, candidate, ways).ways if ways else []


def _ways(reference: Held, candidate: Held, fixed: bool) -> Sequence[Axes]:
    """Return the layouts in which a tensor may hold what another one does: a buffer none that is trained."""
    sides = (reference.parameter, candidate.parameter)
    if any(one.buffer for one in sides) and any(one.trainable and not one.buffer for one in sides):
        return []
    return layouts(reference.shape, candidate.shape, fixed=fixed)
