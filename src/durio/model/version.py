"""The version of this package, for workers to tell."""

__version__ = "0.1.0"
