"""What one side's parameters hold, matched with what the other's do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import ClassVar

import attrs
import numpy as np

from padiff.numerics import Array, laid_out, reordered
from padiff.parameters._shapes import Axes, bare, transposition
from padiff.parameters._special import Relation
from padiff.parameters._units import Held, HeldUnit, Native


@attrs.frozen(eq=False)
class Link:
    """One role of a reference unit, matched with one of a candidate unit."""

    single: ClassVar[bool] = True
    """Whether it matches one parameter with one, and not by a function of several."""

    role: str
    reference: Held
    candidate: Held
    axes: Axes = ()
    """The order of the axes of the side that has more of them, in which joined they make those of the other one.

    Axes of length one do not count. None where they are in order.
    """
    layouts: Sequence[Axes] = ()
    """Such orders, the likeliest first, where names and shapes leave several: forcing must choose."""
    mapped: bool = False
    """Whether the user said so."""
    orders: tuple[tuple[int, ...], ...] = ()
    """For each axis, as far as any are not in order, which of the reference's rows along it the candidate's are."""

    @classmethod
    def of(cls, role: str, reference: Held, candidate: Held, layouts: Sequence[Axes]) -> Link:
        """Return the link of two parameters in the likeliest of the layouts that are possible."""
        return cls(role, reference, candidate, layouts[0], layouts if len(layouts) > 1 else ())

    @property
    def open(self) -> bool:
        """Return whether names and shapes leave several layouts."""
        return bool(self.layouts)

    @property
    def ways(self) -> list[Link]:
        """Return the link in each layout that is possible, the likeliest first."""
        return [attrs.evolve(self, axes=axes) for axes in self.layouts] or [self]

    @property
    def transposed(self) -> bool:
        """Return whether the candidate holds the transpose of a matrix, axes of which may be split."""
        return bool(self.axes) and self.axes == transposition(self.reference.shape, self.candidate.shape)

    @property
    def layout(self) -> str:
        """Return how the candidate holds the values, in words."""
        if self.orders:
            return "rows in another order"
        if self.axes and not self.transposed:
            return f"axes as ({', '.join(map(str, self.axes))})"
        orders = {held.part.transpose for held in (self.reference, self.candidate) if len(held.shape) == 2}
        return "transposed" if bool(self.axes) != (len(orders) > 1) else "as in the reference"

    def to_candidate(self, array: Array) -> Array:
        """Return a canonical array of the reference as the candidate holds it: a view if possible."""
        if (
            self.buffer and array.shape != self.reference.shape
        ):  # another one was put in its place: no rule speaks of it
            return array
        return reordered(self._in_order(array), self.orders)

    def _in_order(self, array: Array) -> Array:
        """Return an array with the axes of the side that has more of them in the link's order, joined or split."""
        ours, fine, shape = bare(self.reference.shape), bare(self.candidate.shape), self.candidate.shape
        if not self.axes:
            return array if array.shape == shape else array.reshape(shape)
        if len(ours) >= len(fine):
            return array.reshape(ours).transpose(self.axes).reshape(shape)
        split = array.reshape([fine[axis] for axis in self.axes])
        return split.transpose(np.argsort(self.axes)).reshape(shape)

    @property
    def alike(self) -> bool:
        """Return whether both sides hold the values in one order, as far as their parts tell."""
        straight = bare(self.reference.shape) == bare(self.candidate.shape)
        return straight and not (self.axes or self.open or self.orders)

    @property
    def read_in(self) -> list[tuple[int, ...]]:
        """Return in which order channels are read, for each axis of which the rows are in another order."""
        return [tuple(np.argsort(order).tolist()) for order in self.orders]

    def in_order(self, goes: Callable[[int], bool]) -> Link:
        """Return the link with its rows in the reference's order, but along axes whose order the code goes with."""
        kept = tuple(order if order and goes(axis) else () for axis, order in enumerate(self.orders))
        return self if kept == self.orders else attrs.evolve(self, orders=kept if any(kept) else ())

    @property
    def packed(self) -> bool:
        """Return whether a side holds it in a part of a parameter."""
        return self.reference.part.partial or self.candidate.part.partial

    @property
    def packed_alike(self) -> bool:
        """Return whether both hold it in one part of parameters of one shape, which may be compared whole then."""
        own, theirs = (attrs.evolve(held.part, parameter="") for held in (self.reference, self.candidate))
        shapes = {held.parameter.shape for held in (self.reference, self.candidate)}
        return self.single and self.packed and self.alike and own == theirs and len(shapes) == 1

    @property
    def references(self) -> tuple[Held, ...]:
        """Return where the reference's values lie."""
        return (self.reference,)

    @property
    def ends(self) -> tuple[Held, ...]:
        """Return where the values of both sides lie."""
        return (*self.references, self.candidate)

    @property
    def buffer(self) -> bool:
        """Return whether it is a buffer that is matched."""
        return self.reference.parameter.buffer

    @property
    def known(self) -> bool:
        """Return whether `expected` gives values: a function that writes to a module itself gives none."""
        return True

    @property
    def differentiated(self) -> bool:
        """Return whether the reference's gradients tell what the candidate's must be."""
        return True

    def expected(self, native: Native) -> Array | None:
        """Return what the candidate's canonical values must be; ``native`` reads the reference's parameters."""
        values = native(self.reference.parameter)
        return None if values is None else self.to_candidate(canonical(self.reference, values))

    def gradient(self, native: Native) -> Array | None:
        """Return what the candidate's canonical gradient must be; ``native`` reads the reference's gradients."""
        return self.expected(native)

    def held(self, native: Native) -> Array | None:
        """Return the candidate's canonical values; ``native`` reads its parameters."""
        values = native(self.candidate.parameter)
        return None if values is None else canonical(self.candidate, values)

    def written(self, values: Array, current: Callable[[], Array]) -> Array:
        """Return what the candidate's parameter must hold, native layout.

        ``values`` is what `expected` gave; ``current`` gives what the parameter holds, in C order, to be written to.
        """
        part = self.candidate.part
        if part.permuted:
            return laid_out(values if part.transpose is None else values.transpose(np.argsort(part.transpose)))
        native = current()
        part.write(native, values)
        return native


@attrs.frozen(eq=False)
class SumLink(Link):
    """The sum of some parameters of the reference, matched with that of some of the candidate's: of biases added up.

    The candidate's first one gets it. Of each further one a link says that it is ``zero``, and gets the same gradient.
    """

    single: ClassVar[bool] = False
    zero: bool = attrs.field(default=False, kw_only=True)

    @property
    def layout(self) -> str:
        """Return what the candidate holds, in words."""
        return "zero, beside a sum" if self.zero else "what is added up, as a sum"

    @property
    def references(self) -> tuple[Held, ...]:
        """Return where what is added up lies, or what the gradient is that of."""
        return (self.reference,) if self.zero else (self.reference, *self.reference.added)

    def expected(self, native: Native) -> Array | None:
        """Return the sum."""
        if self.zero:
            own = native(self.reference.parameter)
            return None if own is None else np.zeros(self.candidate.shape, own.dtype)
        total = _sum(self.references, native)
        return None if total is None else self.to_candidate(total)

    def gradient(self, native: Native) -> Array | None:
        """Return what each of the terms is given: all that is added up gets the same."""
        return Link.expected(self, native)

    def held(self, native: Native) -> Array | None:
        """Return the sum that the candidate holds, in which a further one counts: by itself it is as it should be."""
        own = Link.held(self, native) if self.zero else _sum((self.candidate, *self.candidate.added), native)
        return np.zeros_like(own) if self.zero and own is not None else own


def with_sums(links: Iterable[Link]) -> Iterator[Link]:
    """Yield links, those of biases that are added to others as what they are."""
    for link in links:
        if link.reference.added or link.candidate.added:
            first = SumLink(link.role, link.reference, link.candidate, link.axes, link.layouts)
            yield first
            yield from (attrs.evolve(first, candidate=one, zero=True) for one in link.candidate.added)
        else:
            yield link


def _sum(terms: Sequence[Held], native: Native) -> Array | None:
    found = [(held, native(held.parameter)) for held in terms]
    values = [canonical(held, one) for held, one in found if one is not None]
    return None if len(values) < len(found) else np.sum(values, axis=0, dtype=values[0].dtype)


@attrs.frozen(eq=False)
class SpecialLink(Link):
    """One parameter of a candidate's module, matched with those of a reference's by a special transfer."""

    single: ClassVar[bool] = False
    relation: Relation = attrs.field(kw_only=True)
    read: tuple[Held, ...] = attrs.field(kw_only=True)
    first: bool = attrs.field(kw_only=True)
    """Whether it is the first link of its modules: a function that takes modules is called for that one."""

    @property
    def layout(self) -> str:
        """Return who tells what the candidate holds."""
        return "by a special transfer"

    @property
    def references(self) -> tuple[Held, ...]:
        """Return what the function looked at."""
        return self.read

    @property
    def buffer(self) -> bool:
        """Return whether it is a buffer of the candidate."""
        return self.candidate.parameter.buffer

    @property
    def known(self) -> bool:
        """Return whether the function gives arrays."""
        return self.relation.special.takes != "modules"

    @property
    def differentiated(self) -> bool:
        """Return whether the function only rearranges, or says what becomes of gradients."""
        return self.role in self.relation.differentiated

    def expected(self, native: Native) -> Array | None:
        """Return what the function gives for this parameter; None where it writes to the module itself."""
        values = self.relation.values(native)
        return None if values is None else values[self.role]

    def gradient(self, native: Native) -> Array | None:
        """Return what the gradient must be, where that can be told and the reference has any."""
        return self.relation.gradients(native).get(self.role)

    def written(self, values: Array, current: Callable[[], Array]) -> Array:
        """Return what the function gave."""
        return laid_out(values)


def special_links(reference: HeldUnit, candidate: HeldUnit) -> list[Link]:
    """Return a link for each parameter that a special transfer gives; raises `SpecialFailed` where it fails."""
    assert reference.special is not None
    assert reference.value is not None
    ours, theirs = ({**unit.roles, **unit.extras} for unit in (reference, candidate))
    relation = Relation(
        reference.special,
        (reference.module, candidate.module),
        {name: held.parameter for name, held in ours.items()},
        {name: held.parameter for name, held in theirs.items()},
        reference.value,
    )
    read = tuple(held for name, held in ours.items() if name in relation.read)
    near = next(iter(read or ours.values()), None)
    if near is None:
        return []
    return [
        SpecialLink(name, ours.get(name, near), theirs[name], relation=relation, read=read, first=index == 0)
        for index, name in enumerate(relation.names)
    ]


def canonical(held: Held, native: Array) -> Array:
    """Return the canonical array of a role, given its parameter's native values (or gradient).

    Of another tensor that a forward has put in the place of a buffer no rule says how it lies: its numbers in a row.
    """
    if held.parameter.buffer and native.shape != held.parameter.shape:
        return native.reshape(-1)
    return held.part.read(native)
