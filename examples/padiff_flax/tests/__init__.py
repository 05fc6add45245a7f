"""Test the adapter: padiff's own suite first, then what is JAX's and Flax's alone, then pairs with other frameworks."""
