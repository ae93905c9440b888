"""Interfaces to a store, a clock, an executor and a handler, for the rest of the package."""
