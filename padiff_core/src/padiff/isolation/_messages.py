"""The records that cross between a worker and its parent, and nothing else does."""

from __future__ import annotations

from padiff import forcing, trace
from padiff.alignment import Pair
from padiff.codec import Codec, Custom, Known
from padiff.isolation._errors import ErrorRecord
from padiff.kinds import Part, Placement, Ranks, Unit
from padiff.numerics import Difference, SmallPart
from padiff.recording import Fold, Order, Task

_OF_SIDES = "Check Disturbed Fed ForceRequest Given Noisy Observed Reordered ReplayRequest Replayed Spot"
_RECORDS: list[type] = [
    *(Difference, Fold, Order, Pair, Part, SmallPart, Task, ErrorRecord, Unit),
    *(*trace.TRACE_RECORDS, trace.Cut, trace.Description, trace.ModuleDescription, Placement, Ranks),
    *(getattr(forcing, name) for name in _OF_SIDES.split()),
]
"""Every type of which one side may send the other a record."""


def codec(*, owns: bool) -> Codec:
    """Return what reads and writes the messages of one end; the parent ``owns`` the records with an identity."""
    stores = {"ValueStore": Custom(trace.ValueStore, lambda store: list(store.arrays()), trace.ValueStore.of)}
    return Codec(_RECORDS, Known(owns=owns), stores)
