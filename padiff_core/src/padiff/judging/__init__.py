"""Differences become verdicts, verdicts become findings, of a forced run or of two recorded ones.

`_forced` judges the one, `_recorded` the other. Both share what stands here: `_suspicion` and its ruling, `_causes`
that records show, `_findings` and `_notes`, the `_compared` tree, the models' `_ends`, their `_parameters`, what an
`_optimizer_step` did, and a user's `_tolerance`.
"""

from padiff.judging._activations import HARMLESS_TWICE, named_function
from padiff.judging._causes import is_frameworks
from padiff.judging._compared import matching_of, missing_paths
from padiff.judging._findings import place_around, place_of, with_hooks
from padiff.judging._forced._gradient_cuts import explained_by_cuts
from padiff.judging._forced._judge import Judge
from padiff.judging._forced._loss_rounding import LossRounding
from padiff.judging._forced._merged_rounding import moved_by_merging, unproven_by_gradients
from padiff.judging._forced._outcome import Outcome
from padiff.judging._forced._randomness import sampling
from padiff.judging._forced._replays import Replays
from padiff.judging._forced._slip_causes import explained_by_code
from padiff.judging._forced._soundness import is_rounding, prove
from padiff.judging._forced._state import of_gradients
from padiff.judging._forced._wholes import Ends, Gradients, Runs
from padiff.judging._gathered import Gathered
from padiff.judging._metrics import Measures, measures_of
from padiff.judging._notes import (
    axis_notes,
    carried_notes,
    merged_notes,
    naming_notes,
    reordered_notes,
    unregistered_notes,
)
from padiff.judging._optimizer_notes import notes_of_optimizers
from padiff.judging._optimizer_step import rate_between, shown_setting, step_both
from padiff.judging._parameters import constant_notes, is_close, is_ignored, parameter_findings, special_notes
from padiff.judging._parts import Ignored, part_notes
from padiff.judging._recorded._batches import with_other_batches
from padiff.judging._recorded._given_gradients import given_gradients, sampled
from padiff.judging._recorded._meter import Measuring, Meter, measuring
from padiff.judging._recorded._script_notes import without_settings_seen
from padiff.judging._recorded._step import Recorded
from padiff.judging._recorded._taken_back import TakenBack
from padiff.judging._sizes import held, multiple, size_of
from padiff.judging._suspicion import AGREEING, Suspicion, assessing
from padiff.judging._tolerance import Rule, rule_of, rule_of_numbers, shown_rule
