"""Stand where scripts written for PaDiff 0.3 look for its interface."""

from padiff.documented import add_special_init, assign_weight, auto_diff

__all__ = ["add_special_init", "assign_weight", "auto_diff"]
