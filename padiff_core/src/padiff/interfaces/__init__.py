"""Stand where scripts written for PaDiff 0.3 look for its interface."""

from padiff.documented import assign_weight, auto_diff

__all__ = ["assign_weight", "auto_diff"]
