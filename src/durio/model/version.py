"""The version of this package; workers report it."""

__version__ = "0.1.0"
