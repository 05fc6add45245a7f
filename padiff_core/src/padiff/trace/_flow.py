"""Hold which parameters' values reach which, in one run: the dataflow between what holds parameters."""

from __future__ import annotations

from collections.abc import Mapping, Set
from functools import cached_property
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from padiff.trace._records import Trace

Source = tuple[str, frozenset[str]]
"""A holder, and the names of the operations through which its values came."""
_JOINT = "& "
_GIVEN, _RETURNED = "< ", "> "
INPUT = ""
"""The holder that stands for the model's inputs."""


def called(path: str) -> str:
    """Return the name of the holder that a whole module is: its parameters are used by its own calls."""
    return f"{path}()"


def from_input(fingerprint: str) -> frozenset[str]:
    """Return what stands among the names of operations for the input of the model that values come from."""
    return frozenset({_GIVEN + fingerprint})


def to_output(place: int) -> frozenset[str]:
    """Return what stands among the names of operations for the output of the model that values go to."""
    return frozenset({f"{_RETURNED}{place}"})


def inputs_of(names: frozenset[str]) -> frozenset[str]:
    """Return those of the names on a way that stand for inputs of the model."""
    return frozenset(name for name in names if name.startswith(_GIVEN))


def outputs_of(names: frozenset[str]) -> frozenset[str]:
    """Return those of the names on a way that stand for outputs of the model."""
    return frozenset(name for name in names if name.startswith(_RETURNED))


def operations_of(names: frozenset[str]) -> frozenset[str]:
    """Return those of the names on a way that stand for operations."""
    return names - inputs_of(names) - outputs_of(names)


def joint(operation: str, number: int) -> str:
    """Return the name of the holder that an operation is, where values of different holders meet."""
    return f"{_JOINT}{operation} {number}"


def joint_of(key: str) -> str | None:
    """Return the name of the operation that a holder is, None for another holder."""
    return key.removeprefix(_JOINT).partition(" ")[0] if key.startswith(_JOINT) else None


@attrs.frozen
class Flow:
    """The dataflow of one run.

    A holder is a parameter, by its path; a module whose code is not looked into, as `called` names it; or an operation
    that brings values of different holders together, as `joint` does.
    """

    takes: Mapping[str, frozenset[Source]]
    """Holder -> what the values come from that meet it; in the order in which holders were met first."""
    gives: frozenset[Source] = frozenset()
    """What the values come from that the model returns."""
    contracted: Mapping[str, int] = attrs.field(factory=dict)
    """Matrix of no layer, or stack of them -> an axis that is summed with data: of a matrix its first or its last."""
    refused: str = ""
    """Why nothing is known: what the model raised under the hooks that follow its values."""

    @cached_property
    def goes(self) -> Mapping[str, Set[Source]]:
        """Holder -> who takes its values, and on which ways; the model's outputs have an empty name."""
        found: dict[str, set[Source]] = {}
        for taker, sources in (*self.takes.items(), ("", self.gives)):
            for source, way in sources:
                found.setdefault(source, set()).add((taker, way))
        return found


def flow_of(trace: Trace) -> Flow:
    """Return the dataflow that was noted beside a run; where none was, as far as its calls show it."""
    return flow_of_calls(trace) if trace.flow is None or trace.flow.refused else trace.flow


def flow_of_calls(trace: Trace) -> Flow:
    """Return the dataflow as far as calls of modules show it: what comes between two of them comes from the first."""
    made: dict[int, frozenset[Source]] = {leaf.token: frozenset({(INPUT, frozenset())}) for leaf in trace.root.inputs}
    takes: dict[str, set[Source]] = {}
    last = frozenset({(INPUT, frozenset[str]())})
    for call in trace.calls:
        if not call.leaf:
            continue
        found = frozenset().union(*(made.get(leaf.token, last) for leaf in call.inputs))
        if not call.module.operation:
            key = called(call.path)
            takes.setdefault(key, set()).update(found)
            found = last = frozenset({(key, frozenset[str]())})
        made.update((leaf.token, found) for leaf in call.outputs)
    ends = [made.get(leaf.token, last) for leaf in trace.root.outputs]
    return Flow({key: frozenset(found) for key, found in takes.items()}, frozenset().union(*ends))
