"""Stand where scripts written for PaDiff 0.2 and 0.3 look for add_special_init."""

from padiff.compat import add_special_init

__all__ = ["add_special_init"]
