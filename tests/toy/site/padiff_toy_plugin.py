"""Announce the toy framework's adapters: to tests, which put this folder on the path, and to nobody else."""

from __future__ import annotations

import padiff
from padiff.adapter import AdapterInfo


@padiff.hookimpl
def padiff_adapters() -> list[AdapterInfo]:
    """Return an adapter for each dialect."""
    home = "padiff.testing.toy"
    return [
        AdapterInfo("toy", roots={f"{home}.rows"}, factory=f"{home}.adapter:RowsAdapter"),
        AdapterInfo("toy_t", roots={f"{home}.columns"}, factory=f"{home}.adapter:ColumnsAdapter"),
        AdapterInfo("arrays", roots={"padiff_toy_arrays"}, factory="padiff_toy_arrays:ArraysAdapter"),
    ]
