"""Merge what the ranks of a job recorded, and find where they do not agree with each other."""

from padiff.distributed._causes import explained
from padiff.distributed._merged_runs import Padding, merged_runs, rank_notes
from padiff.distributed._open import open_ranks
from padiff.distributed._run import RankedRun
from padiff.distributed._sides import PartSide
from padiff.distributed._vocabulary import padding_in_loss
