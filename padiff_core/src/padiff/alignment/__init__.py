"""Match the calls of two traces: what a user maps, what parameters anchor, what lies between."""

from padiff.alignment._axes import axis_orders
from padiff.alignment._calls import align
from padiff.alignment._functions import unmatched_inside, with_operations
from padiff.alignment._layer_map import LayerMap, resolve
from padiff.alignment._leaves import first_step, partners, same_sort
from padiff.alignment._mapping_file import MappingFile, read_mapping
from padiff.alignment._mapping_written import written_mapping
from padiff.alignment._mapping_yaml import resolved_file
from padiff.alignment._names import SURE, agreement, in_doubt, namesakes, renumbered, similarity, unwrapped, words
from padiff.alignment._pairs import (
    BY_PLACE,
    GUESSED,
    MAPPED,
    NAMED,
    Alignment,
    ModulePair,
    Pair,
)
from padiff.alignment._permutations import orders_between
from padiff.alignment._resolved import MappedParameter, Resolved, region_of
from padiff.alignment._rows import may_be_permuted, orders_within, recorded_row_orders, row_orders
from padiff.alignment._sequences import align_sequences, forward_run, gaps
