"""Ports that are written by hand: each file holds a model of torch, and of Paddle a port of it in other code."""
