"""Mapping files: how they are read, what they say of two models, how they are written."""
