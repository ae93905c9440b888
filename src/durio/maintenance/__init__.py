"""Loops that keep a store healthy, one per file."""
