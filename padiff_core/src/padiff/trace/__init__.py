"""Hold what one run did, as records: the tree of calls with their settings, arguments and values."""

from padiff.trace._background import Background, QueuedStore
from padiff.trace._cut import Cut, cut_description, cut_records
from padiff.trace._directory import Samples, open_run
from padiff.trace._flow import (
    INPUT,
    Flow,
    Source,
    called,
    flow_of,
    flow_of_calls,
    from_input,
    inputs_of,
    joint,
    joint_of,
    operations_of,
    outputs_of,
    to_output,
)
from padiff.trace._folder import is_url, rank_folder, rank_folders
from padiff.trace._in_time import in_time
from padiff.trace._model import Description, ModuleDescription, layouts_of
from padiff.trace._passes import Passes
from padiff.trace._proof import Proof
from padiff.trace._records import (
    OF_PARAMETERS,
    TRACE_RECORDS,
    Call,
    Frame,
    Key,
    Leaf,
    ModuleRecord,
    ParameterRecord,
    SettingRecord,
    Slot,
    SteppedRecord,
    Text,
    Trace,
)
from padiff.trace._report_file import RECORDS, NpyFiles, ReportRecord, report_codec
from padiff.trace._run import Kept, Run, listed, spanned, without_step
from padiff.trace._run_writer import RunWriter
from padiff.trace._settings import (
    Contrast,
    Described,
    as_called,
    called_alike,
    called_otherwise,
    contrasts,
    contrasts_inside,
    is_sampling,
    plain_values,
    samples_otherwise,
    settings_of,
)
from padiff.trace._shards import InShard
from padiff.trace._summary import Summary, difference_in_any_order, summarized, summed
from padiff.trace._values import Lent, MadeStore, ReadStore, SharedStore, ValueStore, temporary_store
