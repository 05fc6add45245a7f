"""Test padiff's rooms on the toy framework, in milliseconds."""
