"""Draw two models as trees side by side, in one HTML file."""

from padiff.report._html._graph import Graph, GraphLink, GraphNode, GraphSide, GraphValue
from padiff.report._html._of_report import graph_of_report
from padiff.report._html._page import page
