"""Install a distribution as pip does, without a build backend or a network: a wheel made by hand."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Mapping
from pathlib import Path

__all__ = ["install", "wheel"]


def wheel(folder: Path, out: Path) -> Path:
    """Make the wheel of a project whose packages lie in its folder, as hatchling would."""
    settings = tomllib.loads(folder.joinpath("pyproject.toml").read_text(encoding="utf-8"))
    project = settings["project"]
    packages = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    files = {
        path.relative_to(folder.joinpath(package).parent).as_posix(): path.read_text(encoding="utf-8")
        for package in packages
        for path in sorted(folder.joinpath(package).rglob("*.py"))
    }
    return _written(project["name"], project["version"], files, project["entry-points"]["padiff"], out)


def _written(name: str, version: str, files: Mapping[str, str], points: Mapping[str, str], out: Path) -> Path:
    stem = f"{name.replace('-', '_')}-{version}"
    info = f"{stem}.dist-info"
    listed = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[padiff]\n" + "".join(f"{key} = {value}\n" for key, value in points.items()),
    }
    record = "".join(f"{path},,\n" for path in (*listed, f"{info}/RECORD"))
    path = out / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file, content in {**listed, f"{info}/RECORD": record}.items():
            archive.writestr(file, content)
    return path


def install(path: Path, target: Path) -> None:
    """Install a wheel into a folder with pip."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", str(target)]
    subprocess.run([*command, str(path)], check=True, capture_output=True, timeout=120)
