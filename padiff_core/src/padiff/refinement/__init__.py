"""Ask whether the correspondence was right, and return a better one: one refinement a file, all with one signature."""

from padiff.refinement._axes import aligned, led, read_so
from padiff.refinement._buffers import with_buffers_matched, with_buffers_named
from padiff.refinement._call_order import with_calls_in_order
from padiff.refinement._constants import with_constants
from padiff.refinement._cut_calls import Traces
from padiff.refinement._dataflow import with_dataflow
from padiff.refinement._division import with_batches_divided
from padiff.refinement._early_ends import without_early_ends
from padiff.refinement._evidence import Evidence
from padiff.refinement._exchanges import with_exchanges, with_exchanges_by_value
from padiff.refinement._last_functions import without_last_functions
from padiff.refinement._layouts import with_layouts
from padiff.refinement._layouts_by_value import with_layouts_by_value
from padiff.refinement._merged import with_merged
from padiff.refinement._mismatches import without_mismatches
from padiff.refinement._networks import networks_by_value
from padiff.refinement._norms import with_norms_as_read
from padiff.refinement._operations import with_operations_matched
from padiff.refinement._orders import with_orders_borne_out
from padiff.refinement._orders_by_gradient import with_orders_by_gradient
from padiff.refinement._other_rows import with_other_rows
from padiff.refinement._passes import is_told_more, of_stepped_passes
from padiff.refinement._rows import as_read, is_called, is_given, is_used, read_in_rows, with_rows_by_value
from padiff.refinement._sizes import with_sizes_put
from padiff.refinement._slices import in_slices
from padiff.refinement._sums import with_sums
from padiff.refinement._twins import with_twins
