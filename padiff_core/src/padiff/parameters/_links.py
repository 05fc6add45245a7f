"""Tie what one side's parameters hold to what the other's do, and copy it."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from padiff.adapter import Parameter
from padiff.numerics import laid_out
from padiff.parameters._special import Native, Relation
from padiff.parameters._units import Held, HeldUnit

__all__ = ["Link", "SpecialLink", "canonical", "copy_link", "special_links", "view"]

Array = NDArray[Any]


@attrs.define(eq=False)
class Link:
    """Tie one role of a reference unit to one of a candidate unit.

    ``transposed`` says that the candidate holds the transpose; ``open`` that names and shapes leave both layouts
    possible, so that forcing must choose.
    """

    role: str
    reference: Held
    candidate: Held
    transposed: bool = False
    open: bool = False

    def to_candidate(self, array: Array) -> Array:
        """Return a canonical array of the reference in the candidate's orientation and rank: a view."""
        turned = array.T if self.transposed else array
        return turned if turned.ndim == len(self.candidate.shape) else turned.reshape(self.candidate.shape)

    @property
    def references(self) -> tuple[Held, ...]:
        """Return where the reference's values lie."""
        return (self.reference,)

    @property
    def buffer(self) -> bool:
        """Return whether it is a buffer that is tied."""
        return self.reference.parameter.buffer

    @property
    def single(self) -> bool:
        """Return whether it ties one parameter to one, and not by a function of several."""
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

    def copy(self) -> None:
        """Copy the values from the reference's parameter to the candidate's."""
        values = self.expected(view)
        assert values is not None
        part, parameter = self.candidate.part, self.candidate.parameter
        if part.permuted:
            native = values if part.transpose is None else values.transpose(np.argsort(part.transpose))
            parameter.assign(laid_out(native))
            return
        native = np.array(parameter.view(), order="C")
        part.write(native, values)
        parameter.assign(native)


@attrs.define(eq=False)
class SpecialLink(Link):
    """Tie one parameter of a candidate's module to those of a reference's, by a special transfer."""

    relation: Relation = attrs.field(kw_only=True)
    read: tuple[Held, ...] = attrs.field(kw_only=True)
    first: bool = attrs.field(kw_only=True)
    """Whether it is the first link of its modules: a function that takes modules is called for that one."""

    @property
    def references(self) -> tuple[Held, ...]:
        """Return what the function looked at."""
        return self.read

    @property
    def buffer(self) -> bool:
        """Return whether it is a buffer of the candidate."""
        return self.candidate.parameter.buffer

    @property
    def single(self) -> bool:
        """Return False."""
        return False

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

    def copy(self) -> None:
        """Copy what the function gives, or let it write to the candidate's module."""
        values = self.expected(view)
        if values is not None:
            self.candidate.parameter.assign(laid_out(values))
        elif self.first:
            self.relation.copy()


def special_links(reference: HeldUnit, candidate: HeldUnit) -> list[Link]:
    """Return a link for each parameter that a special transfer gives; raises `SpecialFailed` where it fails."""
    assert reference.special is not None
    ours, theirs = ({**unit.roles, **unit.extras} for unit in (reference, candidate))
    relation = Relation(
        reference.special,
        (reference.module, candidate.module),
        {name: held.parameter for name, held in ours.items()},
        {name: held.parameter for name, held in theirs.items()},
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
    """Return the canonical array of a role, given its parameter's native values (or gradient)."""
    return held.part.read(native)


def view(parameter: Parameter) -> Array:
    """Return a parameter's values, native layout."""
    return parameter.view()


def copy_link(link: Link) -> None:
    """Copy one role from the reference's parameter to the candidate's."""
    link.copy()
