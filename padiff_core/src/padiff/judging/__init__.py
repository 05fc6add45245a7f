"""Judge what a forced run showed: differences become verdicts, verdicts become findings."""

from padiff.judging._compared import matching_of, missing_path
from padiff.judging._findings import place_of
from padiff.judging._gather import Outcome
from padiff.judging._gathered import Gathered
from padiff.judging._judge import Judge
from padiff.judging._meter import Measuring, Meter, measuring
from padiff.judging._metrics import Measures, contributed_measures
from padiff.judging._notes import axis_notes, naming_notes, unregistered_notes
from padiff.judging._optimizer_step import rate_between, step_both
from padiff.judging._parameters import constant_notes, is_close, parameter_findings, special_notes
from padiff.judging._randomness import sampling
from padiff.judging._recorded_step import Recorded
from padiff.judging._replays import Replays
from padiff.judging._soundness import is_rounding
from padiff.judging._suspicion import Suspicion, asking
from padiff.judging._tolerance import Rule, measures_of, rule_of, rule_of_numbers, shown_rule
from padiff.judging._wholes import Ends, Runs
