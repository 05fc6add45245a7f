"""Teach padiff to read MindSpore models."""
