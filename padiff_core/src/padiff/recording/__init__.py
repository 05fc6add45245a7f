"""Run a model under hooks and keep what its calls took, gave and got as gradients."""

from padiff.recording._axes import at_input, natively, permuted_input, permuted_model, read_as, wrapped
from padiff.recording._describe import describe, plain
from padiff.recording._finite import first_nonfinite, is_finite, is_masked, nonfinite_inputs
from padiff.recording._flow import refused
from padiff.recording._frames import core_line, line_of, package_of
from padiff.recording._functions import OwnCode, operating, plain_model
from padiff.recording._inputs import arguments, arrays_of, exact, marks, narrowed, truth_values
from padiff.recording._internal_errors import internal_errors, warn_if_internal
from padiff.recording._live import Live
from padiff.recording._loop import Loop
from padiff.recording._numbers import TEXT, numbers_in, type_named
from padiff.recording._optimizer_settings import settings_by_path
from padiff.recording._order import Cuts, Fold, Order, Orders, composed
from padiff.recording._record import Recorder, guarded_run, record
from padiff.recording._reduced import sampled
from padiff.recording._reread import reread
from padiff.recording._sampling import mark_sampling
from padiff.recording._starts import by_value, differentiator
from padiff.recording._task import Task
from padiff.recording._tracked import TrackedAdapter
from padiff.recording._watcher import Watcher, fill
from padiff.recording._weights import Weights
