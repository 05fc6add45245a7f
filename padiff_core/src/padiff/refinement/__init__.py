"""Ask whether the correspondence was right, and put it right: layouts, exchanges, mismatches."""

from padiff.refinement._exchanges import exchanged, exchanged_by_value
from padiff.refinement._layouts import choose_layouts
from padiff.refinement._mismatches import judge_with_doubts

__all__ = ["choose_layouts", "exchanged", "exchanged_by_value", "judge_with_doubts"]
