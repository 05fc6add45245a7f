"""Measure how far a candidate array is from its reference.

`difference` looks at the bits, then at max-abs and relative L2; `close` applies the classic rules that a user types.
Both work in chunks that stay in the cache: beside the two arrays they need about 2 MB, whatever the arrays' size.
Shapes are never broadcast.

One meaning throughout. NaN is equal to NaN at the same place, an infinity to the same infinity; such places
are left out of norms and means. A NaN or infinity without its equal on the other side is an infinite error.
Values of two dtypes are compared in a type that holds both; of integers the exact difference is taken. The
error of complex numbers is a modulus. Non-numeric arrays raise ``TypeError``.
"""

from padiff.numerics import sketching
from padiff.numerics._compare import are_random, beside_masks, close, difference, root_mean_square, same_numbers, sample
from padiff.numerics._dtypes import Array, Seen, in_reals, is_array, is_float, numpy_dtype, read_only, same_bytes
from padiff.numerics._figures import Difference
from padiff.numerics._fingerprint import fingerprint
from padiff.numerics._hidden import hidden_positions
from padiff.numerics._parts import SmallPart, parts_apart
from padiff.numerics._reordered import has_rows, reordered, reorderings
from padiff.numerics._rounding import (
    ACCUMULATED,
    ACCUMULATION,
    BORNE_OUT,
    CAST,
    CONSTANT,
    EXACT,
    FLOORS,
    GROSS,
    JITTERS,
    LOSS,
    LOST,
    MERGING,
    NEGLIGIBLE,
    NEGLIGIBLE_GRADIENT,
    NEGLIGIBLE_LIBRARY,
    NEGLIGIBLE_SENT,
    ORDER,
    RANDOM,
    ROUNDING,
    SAME,
    SETTING,
    SHOWN,
    THRESHOLDS,
    TOGETHER,
    UNSETTLED,
    VANISHES,
    Threshold,
    disturbances,
    disturbed,
    epsilon,
    epsilon_of,
    epsilon_of_number,
    is_coarse,
    is_suspect,
    is_whole,
    narrowest,
    relative,
)
from padiff.numerics._sketch import BLOCK, SKETCH_ERROR, Sketcher, sketch, work_of
from padiff.numerics._squares import product_norm
from padiff.numerics._strips import in_order, is_crosswise, laid_out
