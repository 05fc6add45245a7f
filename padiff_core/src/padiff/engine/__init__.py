"""Go the whole way from two models to a report."""

from padiff.engine._compare import compare
from padiff.engine._diff import diff
from padiff.engine._graph import graph, graph_of_runs
from padiff.engine._map import mapping_of_runs, mapping_text
from padiff.engine._open import opened
from padiff.engine._record import record, record_once
from padiff.engine._transfer import copied_by_name, transfer
