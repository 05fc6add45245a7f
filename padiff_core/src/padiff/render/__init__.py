"""Render a report: as text for a reader, as plain data for a program."""

from padiff.render._data import SCHEMA, to_dict, to_json
from padiff.render._style import to_text
from padiff.render._words import headline

__all__ = ["SCHEMA", "headline", "to_dict", "to_json", "to_text"]
