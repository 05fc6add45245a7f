"""Serve the interface that PaDiff's documents show, on the engine of `padiff.diff`.

Nothing here compares or records: a documented call is brought into the engine's own words, and the engine's report is
told in the documented lines.
"""

from padiff.documented._assign import assign_weight
from padiff.documented._auto_diff import auto_diff
from padiff.documented._loss import default_loss
from padiff.documented._special import add_special_init

__all__ = ["add_special_init", "assign_weight", "auto_diff", "default_loss"]
