"""Say how traces become text."""

from __future__ import annotations

from padiff.codec import Codec, Custom, Known
from padiff.trace._records import TRACE_RECORDS
from padiff.trace._values import ValueStore


def trace_codec(*records: type) -> Codec:
    """Return what writes and reads traces, and ``records`` beside those of a trace."""
    store = Custom(ValueStore, lambda store: list(store.arrays()), ValueStore.of)
    return Codec((*TRACE_RECORDS, *records), Known(owns=False), {"store": store})
