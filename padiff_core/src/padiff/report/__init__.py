"""Hold what a diff found, and write it: as text for a reader, as plain data for a program."""

from padiff.report._json import SCHEMA, to_dict, to_json
from padiff.report._report import Figures, Finding, Measurement, Note, Phase, Place, Report, Transfer, Verdict
from padiff.report._text import to_text
from padiff.report._words import (
    apart,
    between,
    copied,
    few,
    figure,
    headline,
    located,
    measured,
    plural,
    position,
    short,
    title,
    where,
)

__all__ = [
    "SCHEMA",
    "Figures",
    "Finding",
    "Measurement",
    "Note",
    "Phase",
    "Place",
    "Report",
    "Transfer",
    "Verdict",
    "apart",
    "between",
    "copied",
    "few",
    "figure",
    "headline",
    "located",
    "measured",
    "plural",
    "position",
    "short",
    "title",
    "to_dict",
    "to_json",
    "to_text",
    "where",
]
