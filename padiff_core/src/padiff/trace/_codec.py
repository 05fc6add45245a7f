"""Say which records traces are made of, and how they become text."""

from __future__ import annotations

from padiff.codec import Codec, Custom, Known
from padiff.trace._flow import Flow
from padiff.trace._records import (
    Call,
    Frame,
    Leaf,
    ModuleRecord,
    ParameterRecord,
    SettingRecord,
    Slot,
    SteppedRecord,
    Text,
    Trace,
)
from padiff.trace._summary import Summary
from padiff.trace._values import ValueStore

TRACE_RECORDS: tuple[type, ...] = (
    Summary,
    Call,
    Flow,
    Frame,
    Leaf,
    ModuleRecord,
    ParameterRecord,
    SettingRecord,
    Slot,
    SteppedRecord,
    Text,
    Trace,
)
"""The types of records that a trace is made of."""


def trace_codec(*records: type) -> Codec:
    """Return what writes and reads traces, and ``records`` beside those of a trace."""
    store = Custom(ValueStore, lambda store: list(store.arrays()), ValueStore.of)
    return Codec((*TRACE_RECORDS, *records), Known(owns=False), {"store": store})
