"""Tell what the figures of a benchmark depend on."""

from __future__ import annotations

import datetime
import os
import platform
from importlib.metadata import version
from pathlib import Path

__all__ = ["machine"]


def machine(*libraries: str) -> dict[str, str]:
    """Return the date, the processor, its load, and the versions of Python and of some libraries."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        model = lines[0].split(":", 1)[1].strip() if lines else model
    return {
        "date": datetime.date.today().isoformat(),
        "cpu": model,
        "cores": str(os.cpu_count()),
        "load": f"{os.getloadavg()[0]:.1f}",
        "python": platform.python_version(),
        **{name: version(name) for name in libraries},
    }
