"""Install into an environment: ``.venv/bin/python requirements/install.py .venv-flax -r requirements/flax.txt``.

uv takes a quarter of pip's CPU time, and unpacks once what several environments hold, but reads none of pip's settings.
It is given them here: what is installed comes from where pip would get it. Where uv cannot install, pip does.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

# What each of pip's settings is for uv: an option, which is given once for each of the words.
OPTIONS = {
    "index-url": "--default-index",
    "extra-index-url": "--index",
    "find-links": "--find-links",
    "constraint": "--constraint",
    "trusted-host": "--allow-insecure-host",
}
VARIABLES = {
    "cert": "SSL_CERT_FILE",
    "proxy": "ALL_PROXY",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "timeout": "UV_HTTP_TIMEOUT",
}
SECTIONS = ("global.", "install.", ":env:.")  # a later one counts


def settings() -> dict[str, str]:
    """Return pip's settings by their names, such as ``index-url``."""
    listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], check=True, capture_output=True, text=True)
    lines = [line.partition("=") for line in listed.stdout.splitlines()]
    return {
        name.removeprefix(section): ast.literal_eval(value)
        for section in SECTIONS
        for name, _, value in lines
        if name.startswith(section)
    }


def options(found: Mapping[str, str]) -> Iterator[str]:
    """Yield what uv is told."""
    for name, option in OPTIONS.items():
        for word in found.get(name, "").split():
            yield from (option, word)
    if found.get("no-index", "").lower() in ("1", "true", "yes", "on"):
        yield "--no-index"
    yield from ("--index-strategy", "unsafe-best-match")  # of all indexes, as pip takes it
    # A folder of this clone's: its environments hold hard links to what is in it.
    yield from ("--cache-dir", str(Path(sys.prefix) / "uv-cache"))


def main(environment: str, *wanted: str) -> int:
    """Install what is wanted, and return the exit status."""
    found = settings()
    variables = {variable: found[name] for name, variable in VARIABLES.items() if name in found}
    uv = ["uv", "pip", "install", "--quiet", "--python", environment, *options(found)]
    if subprocess.run([sys.executable, "-m", *uv, *wanted], env=variables | os.environ).returncode == 0:
        return 0
    print("uv could not install this, for what stands above: pip does it.", file=sys.stderr)
    # Half of pip's time would go into compiling modules that nobody imports; the others are compiled then.
    pip = ["pip", "--python", environment, "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    return subprocess.run([sys.executable, "-m", *pip, *wanted]).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
