"""Hold what a forced run finds: tensors, the places where they were seen, and how far they are off."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import attrs
import numpy as np

from padiff.alignment import Pair
from padiff.numerics import Array, Difference, SmallPart, is_suspect, parts_apart
from padiff.report import Measurement
from padiff.trace import Call, Key, Leaf

Plan = Mapping[Key, Pair]
"""Key of a call that will be made -> its pair."""
UNLIKE = Difference(False, float("inf"), float("inf"), float("nan"), False, True, False, 0)
"""Of values of two shapes."""


class Values(Protocol):
    """What gives the reference's values: a trace, or what another run observed."""

    def value(self, leaf: Leaf) -> Array | None:
        """Return the value of a reference's leaf."""

    def gradient(self, leaf: Leaf) -> Array | None:
        """Return the complete gradient of a reference's leaf."""


@attrs.define(eq=False)
class Observed:
    """What a run computed itself, by the reference's tokens, and by the spots where it was seen."""

    values: dict[int, Array] = attrs.field(factory=dict)
    spots: dict[tuple[int, str, int, str], Array] = attrs.field(factory=dict)
    gradients: dict[int, Array] = attrs.field(factory=dict)

    def value(self, leaf: Leaf) -> Array | None:
        """Return the value of a reference's leaf."""
        return self.values.get(leaf.token)

    def gradient(self, leaf: Leaf) -> Array | None:
        """Return the complete gradient of a reference's leaf."""
        return self.gradients.get(leaf.token)


@attrs.frozen
class Spot:
    """One tensor of the candidate where it was first seen, and what it stands for."""

    what: str
    """``input`` or ``output`` of ``pair``'s call."""
    pair: Pair
    owner: Pair | None
    """The call whose own code made the tensor; None for the root's inputs."""
    between: tuple[str, str]
    reference: Leaf
    candidate: Leaf
    maker: Call | None = None
    """The call without counterpart, inside the owner, whose own code gave the tensor."""

    @property
    def key(self) -> tuple[int, str, int, str]:
        """Return what names the spot in every run of the same alignment."""
        return (self.pair.reference.index, self.what, self.reference.token, self.candidate.path)

    def hidden(self, apart: Difference, truth: Array, read: Callable[..., Any]) -> tuple[SmallPart, ...]:
        """Return the small parts that are apart of a value which is not as a whole, where the model's own code made it.

        ``read`` is as `Tensor.read`. A framework's own layer makes all of a value alike.
        """
        own = self.owner is not None and (self.owner.candidate.children or self.owner.reference.module.kind is None)
        if not own or is_suspect(apart, truth.dtype):
            return ()
        return tuple(one for one in read(parts_apart, truth) if is_suspect(one.difference, truth.dtype))


@attrs.frozen
class Check:
    """One value that was not the reference's to the bit."""

    spot: Spot
    backward: bool
    difference: Difference
    kept: bool = False
    """True where the candidate's own value stayed: another spelling of a mask, or an integer without a name."""
    tainted: bool = False
    """True where an earlier value of the same code could not be fed: its shape was another."""
    close: bool | None = None
    """What the user's own rule says, where one was given."""
    measured: tuple[Measurement, ...] = ()
    """What the metrics of plugins give, where there are some and the difference may matter."""
    parts: tuple[SmallPart, ...] = ()
    """Of a value that is apart by no more than rounding: parts far smaller than the rest that are apart by more."""


@attrs.frozen
class Assessment:
    """What the user's own rule, and the metrics of plugins, say of one value."""

    close: bool | None = None
    measured: tuple[Measurement, ...] = ()


Assess = Callable[[Pair | None, Difference, Array, Array], Assessment]
"""Takes the owner of a value, its difference, and the reference's and the candidate's arrays."""


def with_zeros(ours: Array | None, theirs: Array | None) -> tuple[Array, Array] | None:
    """Return two values, with zeros for one that is missing, as a gradient that does not come; None where both are."""
    if ours is None:
        return None if theirs is None else (np.zeros_like(theirs), theirs)
    return ours, np.zeros_like(ours) if theirs is None else theirs


def read_of_array(array: Array) -> tuple[Callable[..., Any], Callable[[], Array]]:
    """Return what reads an array as `Tensor.read` reads a tensor, and what returns it."""
    return lambda function, *arrays: function(*arrays, array), lambda: array


def wrapper(call: Call, owner: Call | None, before: Call | None) -> Call | None:
    """Return the innermost call without counterpart that is around a call and the matched one before it."""
    around = set() if before is None else set(before.ancestors())
    for above in call.ancestors():
        if above is owner:
            break
        if above in around and above.module.kind is None:
            return above
    return None
