"""Install little distributions into a folder of a test's own."""

from __future__ import annotations

import textwrap
from pathlib import Path

__all__ = ["ADAPTER", "FRAMEWORK", "PLUGIN", "Site"]

FRAMEWORK = """
__version__ = "7.1"
class Module: pass
class Tensor: pass
"""

ADAPTER = """
import {imports}
from padiff import Adapter

def _nothing(self, *args, **kwargs):
    return None

Blank = type("Blank", (Adapter,), {{name: _nothing for name in Adapter.__abstractmethods__}})

class Fake(Blank):
    name = "{name}"
    table = {{}}
    def is_tensor(self, value):
        return any(cls.__name__ == "Tensor" for cls in type(value).__mro__)
"""

PLUGIN = """
import padiff

@padiff.hookimpl
def padiff_adapters():
    settings = dict(factory={factory!r}, load_before={before!r}, api={api!r})
    yield padiff.AdapterInfo(name={name!r}, roots={roots!r}, **settings)
"""


class Site:
    """Install little distributions into a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def module(self, name: str, text: str) -> None:
        path = self.folder.joinpath(*name.split(".")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))

    def framework(self, name: str, text: str = FRAMEWORK) -> None:
        self.module(f"{name}.__init__", text)

    def plugin(self, dist: str, text: str, *, target: str | None = None, version: str = "1.0") -> None:
        """Install a distribution whose entry point names a module with the given text."""
        module = dist.replace("-", "_") + "_plugin"
        self.module(module, text)
        info = self.folder / f"{dist.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        info.joinpath("METADATA").write_text(f"Metadata-Version: 2.1\nName: {dist}\nVersion: {version}\n")
        info.joinpath("entry_points.txt").write_text(f"[padiff]\n{dist} = {target or module}\n")

    def adapter(
        self,
        dist: str,
        name: str,
        *,
        roots: tuple[str, ...] = (),
        api: int = 1,
        before: tuple[str, ...] = (),
        factory: str | None = None,
        text: str = ADAPTER,
    ) -> None:
        """Install a whole adapter of the framework of that name."""
        module = dist.replace("-", "_") + "_adapter"
        self.module(module, text.format(imports=name, name=name))
        shape = {"name": name, "roots": roots or (name,), "api": api, "before": before}
        self.plugin(dist, PLUGIN.format(**shape, factory=factory or f"{module}:Fake"))
