"""Feed a run of the candidate from the reference's trace, and replay one call by itself."""

from padiff.forcing._forcer import Check, Measure, Spot, Values
from padiff.forcing._overwrite import Memory
from padiff.forcing._replay import Alone, Bench, Reader
from padiff.forcing._run import Forced, StateCheck, force

__all__ = [
    "Alone",
    "Bench",
    "Check",
    "Forced",
    "Measure",
    "Memory",
    "Reader",
    "Spot",
    "StateCheck",
    "Values",
    "force",
]
