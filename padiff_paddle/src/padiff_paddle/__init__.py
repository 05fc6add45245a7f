"""Teach padiff to read PaddlePaddle models."""
