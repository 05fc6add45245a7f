"""Stand where scripts written for PaDiff 0.3 look for LayerMap."""

from padiff.alignment import LayerMap

__all__ = ["LayerMap"]
