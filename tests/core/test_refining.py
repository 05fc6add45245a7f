"""Colours are refined as Weisfeiler and Leman do, round by round, whatever is not looked at again."""

from itertools import islice, pairwise

from hypothesis import given
from hypothesis import strategies as st

from padiff.parameters._refining import refined

_ROUNDS = 6


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[int], list[dict[int, int]], list[int]]:
    """Draw colours, for each node what it takes and by which way, and the nodes that may change."""
    count = draw(st.integers(1, 12))
    nodes = st.integers(0, count - 1)
    takes = [draw(st.dictionaries(nodes, st.integers(0, 1), max_size=4)) for _ in range(count)]
    fixed = draw(st.sets(nodes, max_size=3))
    colours = [3 + node if node in fixed else draw(st.integers(0, 2)) for node in range(count)]
    return colours, takes, [node for node in range(count) if node not in fixed]


def partition(colours: object) -> set[frozenset[int]]:
    """Return which nodes have one colour."""
    found: dict[object, set[int]] = {}
    for node, colour in enumerate(colours):  # type: ignore[arg-type]
        found.setdefault(colour, set()).add(node)
    return {frozenset(nodes) for nodes in found.values()}


@given(graphs(), st.sampled_from([(True, True), (True, False), (False, True)]))
def test_a_round_tells_apart_what_has_other_neighbours(
    graph: tuple[list[int], list[dict[int, int]], list[int]], ends: tuple[bool, bool]
) -> None:
    colours, takes, moving = graph
    taken = [list(one.items()) for one in takes]
    given_to = [
        [(user, way) for user, one in enumerate(takes) for i, way in one.items() if i == node]
        for node in range(len(takes))
    ]
    seen = [one for one, wanted in zip((taken, given_to), ends, strict=True) if wanted]
    seers = [one for one, wanted in zip((given_to, taken), ends, strict=True) if wanted]
    rounds = list(islice(refined(colours, seen, seers, moving), _ROUNDS))
    assert list(rounds[0]) == colours
    for before, after in pairwise(rounds):
        near = {node: [sorted((before[i], way) for i, way in side[node]) for side in seen] for node in moving}
        told = [repr((before[node], near.get(node))) for node in range(len(colours))]
        assert partition(after) == partition(told)
