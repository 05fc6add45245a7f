"""Diff models across frameworks: a zoo of pairs, a table of planted faults, and real third-party pairs."""
