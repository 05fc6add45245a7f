"""Say which faults a build plants, and in which block."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

__all__ = ["FAULTY", "Plan"]

FAULTY = 1
"""The index of the one block in which block-level faults are planted; its neighbours stay right."""


@attrs.frozen
class Plan:
    """Hold the faults of one build; ``fault in plan`` asks."""

    faults: frozenset[str] = attrs.field(default=frozenset(), converter=frozenset)

    def __contains__(self, fault: str) -> bool:
        return fault in self.faults

    def block(self, index: int) -> Plan:
        """Return the plan of the block with this index: empty but for the faulty one."""
        return self if index == FAULTY else Plan()

    def unknown(self, known: Iterable[str]) -> frozenset[str]:
        """Return the faults that a builder does not know."""
        return self.faults - frozenset(known)
