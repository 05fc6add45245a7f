"""Tell whose code can have sent a gradient: calls that take the tensor, and the code around that can use it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from padiff.alignment import Alignment, Pair
from padiff.forcing import Forced, Spot


def senders(spot: Spot, forced: Forced, alignment: Alignment) -> tuple[list[Pair], list[Pair]]:
    """Return the calls that take a spot's tensor, and with them all that can send it a gradient, innermost first."""
    # What stands for the same tensor may be another one there: a dropout that does nothing hands on a copy.
    token = spot.reference.token
    alike = [pair for pair in alignment.pairs if any(ours.token == token for ours, _ in pair.taken)]
    takers = [*forced.consumers.get(spot.candidate.token, ()), *alike]
    takers = [pair for pair in takers if pair is not spot.pair]
    if spot.what == "input":
        takers.append(spot.pair)
    inner_first = sorted(takers, key=lambda pair: -sum(1 for _ in pair.candidate.ancestors()))
    # Of several outputs a call may have made one of another: a cell's hidden state of its cell state.
    maker = [spot.pair] if spot.what == "output" and len(spot.pair.reference.outputs) > 1 else []
    return takers, list(dict.fromkeys((*maker, *inner_first, *_sharing(spot, alignment))))


def _sharing(spot: Spot, alignment: Alignment) -> Iterator[Pair]:
    """Yield the calls whose own code can use the tensor, innermost first: the maker's surroundings, and theirs as long
    as the tensor is handed on outwards."""
    pair = alignment.around(spot.pair) if spot.what == "output" else spot.owner
    while pair is not None:
        yield pair
        if all(leaf.token != spot.reference.token for leaf in pair.reference.outputs):
            break
        pair = alignment.around(pair)


def likely_sender(spot: Spot, suspects: Sequence[Pair], forced: Forced, alignment: Alignment) -> Pair:
    """Return whose code most likely sent a wrong gradient, where no replay tells.

    That is what is around a call that takes another tensor than it does in the reference: it gave it that. Else it is
    the innermost of the model's own code.
    """
    token, takers = spot.reference.token, [*forced.consumers.get(spot.candidate.token, ()), spot.pair]
    taking = (one for one in alignment.pairs if any(ours.token == token for ours, _ in one.taken))
    others = [alignment.around(one) for one in taking if one not in takers]
    modules = ((pair, pair.candidate.module) for pair in suspects)
    own = (pair for pair, module in modules if module.kind is None and not module.operation)
    return next(pair for pair in (*others, *own, *suspects, spot.pair) if pair is not None)
