"""Hold the catalogue of kinds: what a module is in any framework, and how its parameters lie."""

from padiff.kinds._catalogue import CATALOGUE, FUSED, LAYOUT, Habit, Kind, Part, Rule, Setting, Unit, same_padding
from padiff.kinds._functions import VIEWS, computes, is_in_place, short_name

__all__ = [
    "CATALOGUE",
    "FUSED",
    "LAYOUT",
    "VIEWS",
    "Habit",
    "Kind",
    "Part",
    "Rule",
    "Setting",
    "Unit",
    "computes",
    "is_in_place",
    "same_padding",
    "short_name",
]
