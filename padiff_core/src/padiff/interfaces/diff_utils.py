"""Stand where scripts written for PaDiff 0.3 look for its default loss."""

from padiff.compat import default_loss

__all__ = ["default_loss"]
