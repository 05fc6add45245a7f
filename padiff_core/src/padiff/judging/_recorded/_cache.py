"""Keep what was measured of pairs of values, line by line: a comparison that was killed goes on from there."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from padiff.errors import InputError
from padiff.judging._recorded._value_pairs import ValuePair
from padiff.judging._sizes import Size
from padiff.judging._tolerance import shown_rule
from padiff.numerics import Difference

_HEAD = b"padiff measurements 1\n"


class Measurements:
    """A file of measurements: of these two runs, and of any others. A line that is damaged is measured again."""

    def __init__(self, path: str | os.PathLike[str], tolerance: Mapping[str, Any] | None) -> None:
        """Open the file, or make it; raise `InputError` where that cannot be, or it is a file of another sort."""
        self.where = str(path)
        self._rule = None if tolerance is None else json.dumps(shown_rule(tolerance), sort_keys=True)
        metric = None if tolerance is None else tolerance.get("metric")
        self._metric = metric is not None
        self._keeps = metric is None or isinstance(metric, str)
        """Whether the rule is told by its name: of a function of the user's another may have the same."""
        try:
            self._file = open(Path(path), "a+b", buffering=0)  # noqa: SIM115  closed in close()
            self._file.seek(0)
            content = self._file.read()
            if content and not content.startswith(_HEAD):
                self._file.close()
                msg = f"{path} is no file of measurements; nothing of it was touched.\n"
                raise InputError(msg + "Hint: name a new file as the cache, or one that padiff wrote.")
            if not content:
                self._file.write(_HEAD)
            elif not content.endswith(b"\n"):
                self._file.write(b"\n")  # behind what a kill left of a line
        except OSError as error:
            msg = f"{path} cannot keep what is measured: {error.strerror}.\nHint: name a file that can be written to."
            raise InputError(msg) from error
        self._known: dict[str, tuple[dict[str, Any], float, str | None, bool | None]] = {}
        for line in content.splitlines()[1:]:
            self._take(line)

    def _take(self, line: bytes) -> None:
        checksum, _, text = line.partition(b" ")
        if checksum != b"%08x" % zlib.crc32(text):
            return
        name, figures, eps, rule, close = json.loads(text)
        if rule == self._rule or name not in self._known:
            self._known[name] = figures, eps, rule, close

    def get(self, both: ValuePair) -> Size | None:
        """Return what is known of a pair under this tolerance, or None."""
        name = both.name
        found = None if name is None else self._known.get(name)
        if found is None:
            return None
        figures, eps, rule, close = found
        apart = Difference(**figures)
        if self._rule is None:
            return Size(apart, eps)
        if rule != self._rule:
            return Size(apart, eps, True) if apart.equal and not self._metric else None
        return Size(apart, eps, close) if self._keeps else None

    def put(self, both: ValuePair, size: Size | None) -> None:
        """Keep what was measured of a pair."""
        name = both.name
        if name is None or size is None:
            return
        text = json.dumps([name, attrs.asdict(size.difference), size.eps, self._rule, size.close]).encode()
        try:
            self._file.write(b"%08x %s\n" % (zlib.crc32(text), text))
        except OSError as error:
            msg = f"{self.where} cannot keep what is measured: {error.strerror}.\nHint: free space, or leave it out."
            raise InputError(msg) from error

    def close(self) -> None:
        """Close the file."""
        self._file.close()
