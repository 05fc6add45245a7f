"""Test the core without a framework."""
