"""Run the suite over adapters and render the table of what they offer: ``python -m padiff.testing``."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from padiff.testing.conformance import read, table

_BEGIN, _END = "<!-- the table begins -->\n", "<!-- the table ends -->\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Run each file's suite in a process of its own; write its JSON into a folder, and the table beside that."""
    parser = argparse.ArgumentParser(prog="python -m padiff.testing", description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, help="test files with a subclass of AdapterTests")
    parser.add_argument("--into", type=Path, required=True, metavar="FOLDER", help="with a JSON file for each adapter")
    parser.add_argument("--check", action="store_true", help="test and write nothing; fail where FOLDER says otherwise")
    arguments = parser.parse_args(argv)
    if arguments.check:
        return _check(arguments.files, arguments.into)
    failed = [file for file in arguments.files if _suite(file, arguments.into) != 0]
    page = arguments.into.with_suffix(".md")
    page.write_text(_page(page, table(read(arguments.into))), encoding="utf-8")
    for file in failed:
        print(f"{file} fails", file=sys.stderr)
    return 1 if failed else 0


def _suite(file: Path, folder: Path, *more: str) -> int:
    plugin = ("-p", "padiff.testing.conformance", "--conformance", str(folder.resolve()))
    return subprocess.run([sys.executable, "-m", "pytest", "-q", *plugin, *more, str(file)], check=False).returncode


def _page(page: Path, rendered: str) -> str:
    """Return a page with the table between its marks; a page of the table alone where there is none yet."""
    before = page.read_text(encoding="utf-8") if page.exists() else f"# Conformance\n\n{_BEGIN}{_END}"
    head, _, rest = before.partition(_BEGIN)
    return f"{head}{_BEGIN}{rendered}{_END}{rest.partition(_END)[2]}"


def _check(files: Sequence[Path], folder: Path) -> int:
    """Return 1, and say why, where what the suite collects is not what the folder and the page say."""
    with tempfile.TemporaryDirectory() as name:
        fresh = Path(name)
        for file in files:
            if _suite(file, fresh, "--collect-only", "-q") != 0:
                return 1
        known = {seen.adapter: seen for seen in read(folder)}
        stale = [seen.adapter for seen in read(fresh) if known.get(seen.adapter) != seen]
    page = folder.with_suffix(".md")
    if not stale and page.exists() and page.read_text(encoding="utf-8") == _page(page, table(list(known.values()))):
        return 0
    print(
        f"{', '.join(stale) or page} is not what the suite gives.\n"
        f"Hint: python -m padiff.testing --into {folder} {' '.join(map(str, files))}",
        file=sys.stderr,
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
