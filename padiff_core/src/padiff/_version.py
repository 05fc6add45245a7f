"""The version of the distribution padiff-core."""

__all__ = ["__version__"]

__version__ = "0.5.0.dev0"
