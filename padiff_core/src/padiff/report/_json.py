"""Turn a report into plain data: dicts, lists, strings, numbers, as docs/report.md documents them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from enum import Enum
from typing import Any

import attrs

from padiff.report._finding import Worded
from padiff.report._report import Report

SCHEMA = "padiff.report/2"
"""The schema's name and version; the version grows when a key changes its meaning or goes."""


_FIRST = ("phase", "forward_only", "tolerance", "reference", "candidate", "counts", "output", "output_within", "loss")
_LAST = ("mapping", "calls")


def to_dict(report: Report) -> dict[str, Any]:
    """Return the report as dicts and lists that JSON can hold; the keys are the fields of its classes.

    A float that is no number is a string: ``NaN``, ``Infinity`` or ``-Infinity``.
    """
    fields = _plain(report)
    order = dict.fromkeys([*_FIRST, *(name for name in fields if name not in _LAST), *_LAST])
    return {"schema": SCHEMA, "aligned": report.aligned, **{name: fields[name] for name in order}}


def to_json(report: Report, *, indent: int | None = 2) -> str:
    """Return the report as JSON, in ASCII alone, so that any stream can take it."""
    return json.dumps(to_dict(report), indent=indent, allow_nan=False)


def _plain(value: Any) -> Any:
    """Return a value of a report as JSON knows it."""
    if attrs.has(type(value)):
        words = str(value) if isinstance(value, Worded) else getattr(value, "text", None)
        fields = {field.name: _plain(getattr(value, field.name)) for field in attrs.fields(type(value))}
        return fields if words is None else {"text": words, **fields}
    if isinstance(value, Enum):
        return _plain(value.value)
    if isinstance(value, Mapping):
        return {str(key.value if isinstance(key, Enum) else key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value)
    number = float(value)
    if math.isfinite(number):
        return number
    return "NaN" if math.isnan(number) else ("Infinity" if number > 0 else "-Infinity")
