"""Hold what a diff found, and write it: as text for a reader, as plain data for a program. All words are made here."""

from padiff.report._compared import ComparedCall, MatchedModules, MatchedParameters, Matching
from padiff.report._finding import (
    SIDES,
    Cause,
    Evidence,
    Figures,
    Finding,
    Measurement,
    Note,
    Phase,
    Place,
    Verdict,
    What,
)
from padiff.report._html import Graph, GraphLink, GraphNode, GraphSide, GraphValue, page
from padiff.report._json import SCHEMA, to_dict, to_json
from padiff.report._report import Report, Transfer
from padiff.report._templates import few
from padiff.report._text import to_text
from padiff.report._whole import By, Coverage, FreeRuns, RecordedRuns
from padiff.report._words import headline, recorded, sources, summary
