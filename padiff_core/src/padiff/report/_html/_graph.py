"""Hold two models as trees side by side, and what is matched with what: the data of the page."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from padiff.report._finding import Figures, Finding


@attrs.frozen
class GraphValue:
    """A tensor of a call, or a parameter of its module."""

    name: str
    dtype: str = ""
    shape: tuple[int, ...] | None = None
    statistics: Mapping[str, float] = attrs.field(factory=dict)
    about: str = ""
    """What else is known of it, in words."""


@attrs.frozen
class GraphNode:
    """One call of one side; ``path`` is None where it stands for a whole step."""

    path: str | None
    class_name: str = ""
    call: int = 0
    """Which execution of the module, from 0."""
    parent: int | None = None
    """The position among its side's nodes of the call around it."""
    step: int = 0
    location: str = ""
    stack: tuple[str, ...] = ()
    inputs: tuple[GraphValue, ...] = ()
    outputs: tuple[GraphValue, ...] = ()
    input_gradients: tuple[GraphValue, ...] = ()
    output_gradients: tuple[GraphValue, ...] = ()
    parameters: tuple[GraphValue, ...] = ()
    settings: Mapping[str, str] = attrs.field(factory=dict)
    """The hyper-parameters as they were at the call, as they read."""
    wrong: str = ""
    """``NaN`` or ``Inf``, where its values hold one."""


@attrs.frozen
class GraphSide:
    """One of the two models."""

    title: str
    nodes: tuple[GraphNode, ...]
    """In execution order."""
    label: str = ""
    """What it is: the reference, the candidate, or what a user's own file calls it."""
    wrong: Mapping[str, int] = attrs.field(factory=dict)
    """``NaN`` or ``Inf`` -> the node where the first one came up."""


@attrs.frozen
class GraphLink:
    """Two calls that were matched: their positions among their sides' nodes."""

    reference: int
    candidate: int
    verdict: str | None = None
    """None where no values were compared."""
    why: str = ""
    forced: Figures | None = None
    free: Figures | None = None


@attrs.frozen
class Graph:
    """All that the page shows."""

    reference: GraphSide
    candidate: GraphSide
    links: tuple[GraphLink, ...] = ()
    findings: tuple[Finding, ...] = ()
    headline: str = ""
    sources: str = ""
    """How many sources there are, in the words of the report."""
    recorded: bool = False
    """Whether the values are those of recorded runs: nothing was fed, and steps have the numbers of the recordings."""
    rules: Mapping[str, Mapping[str, str]] = attrs.field(factory=dict)
    """The rules of a mapping.yaml that hold already: class of the reference's parent -> name -> the candidate's."""
    backward: bool = False
    """Whether the backward pass can be shown too."""
