"""Test plugins that are really installed, on real models."""
