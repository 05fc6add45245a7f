"""Build models of the pairs in whatever environment: what remote workers of other versions are asked for."""

from __future__ import annotations

from typing import Any

from pairs import zoo


def build(pair: str, framework: str, faults: list[str], seed: int) -> Any:
    """Return one side of a pair."""
    return zoo.build(pair, framework, faults, seed=seed)
