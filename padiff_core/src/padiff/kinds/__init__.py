"""Hold the catalogue of kinds: what a module is in any framework, and how its parameters lie."""

from padiff.kinds import classes, conversions, spelling
from padiff.kinds._catalogue import (
    CATALOGUE,
    CONVOLUTIONS,
    FUSED,
    LAYOUT,
    NORMS,
    ORDER_SETTINGS,
    PRODUCTS,
    SLIDING,
    STATE_MAP,
    Kind,
)
from padiff.kinds._functions import VIEWS, computes, is_in_place, short_name
from padiff.kinds._layout import Part, interleaved
from padiff.kinds._optimizers import EPS_PLACE, is_optimizer_family, is_optimizer_rule
from padiff.kinds._placements import UNKNOWN, Placement, Ranks, Spread, is_data, parts_of_data, shares_data, unreduced
from padiff.kinds._rules import Habit, Rule, Setting, Unit
