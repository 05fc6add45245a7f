"""Teach padiff to read models of JAX and Flax NNX."""
