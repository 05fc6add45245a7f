"""Match the calls of two traces: what a user maps, what parameters anchor, what lies between."""

from padiff.alignment._axes import orders_between, turns
from padiff.alignment._calls import align
from padiff.alignment._functions import with_operations
from padiff.alignment._layer_map import LayerMap, Resolved, resolve
from padiff.alignment._names import agreement, renumbered, similarity, words
from padiff.alignment._pairs import BY_PLACE, GUESSED, MAPPED, Alignment, ModulePair, Pair
from padiff.alignment._rows import may_be_permuted, row_orders
from padiff.alignment._sequences import align_sequences, forward_run

__all__ = [
    "BY_PLACE",
    "GUESSED",
    "MAPPED",
    "Alignment",
    "LayerMap",
    "ModulePair",
    "Pair",
    "Resolved",
    "agreement",
    "align",
    "align_sequences",
    "forward_run",
    "may_be_permuted",
    "orders_between",
    "renumbered",
    "resolve",
    "row_orders",
    "similarity",
    "turns",
    "with_operations",
    "words",
]
