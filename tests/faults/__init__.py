"""Stores that fail on request, for tests."""
