"""Sustained load on real workers under faults, measured and judged."""
