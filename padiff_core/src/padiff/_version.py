"""The version of the distribution padiff-core."""

__version__ = "0.5.0.dev0"
