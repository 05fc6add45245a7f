"""Feed a run of the candidate from the reference's trace, replay one call by itself: the sides that can run."""

from padiff.forcing._bench import Bench, Disturbed, Noisy, Reader, Reordered, gradient_reader, value_reader
from padiff.forcing._checks import Assess, Assessment, Check, Observed, Spot, Values, with_zeros
from padiff.forcing._divided import Divided, Division, Picked, Place, Share, Summand, divided
from padiff.forcing._led import with_calls_of
from padiff.forcing._masks import is_turned, says_the_same
from padiff.forcing._messages import Fed, ForceRequest, Given, Replayed, ReplayRequest, Slotted
from padiff.forcing._overwrite import Memory
from padiff.forcing._recorded import NotRepeated, RecordedSide, weights_of
from padiff.forcing._reference import NotRecorded, RecordedReference, is_recorded
from padiff.forcing._run import Forced, Reading, StateCheck, compared_gradients, force, gradients_of
from padiff.forcing._side import LocalSide, Side, holding
