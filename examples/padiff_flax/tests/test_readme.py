"""Run what the README shows."""

from __future__ import annotations

import contextlib
import io
import linecache
import re
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def test_the_readme_shows_what_happens() -> None:
    blocks = re.findall(r"```python\n(.*?)```\s*```text\n(.*?)```", README.read_text(), re.DOTALL)
    assert len(blocks) == 2
    names: dict[str, object] = {"__name__": "readme"}
    for index, (code, expected) in enumerate(blocks):
        file = f"<README {index}>"
        linecache.cache[file] = (len(code), None, code.splitlines(keepends=True), file)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, file, "exec"), names)
        assert printed.getvalue() == expected
