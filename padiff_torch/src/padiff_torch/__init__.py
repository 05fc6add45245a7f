"""Teach padiff to read PyTorch models."""
