"""Go the whole way from two models to a report."""

from padiff.engine._diff import diff

__all__ = ["diff"]
