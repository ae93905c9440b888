"""Chaos with real processes: one file, four workers, two producers, and faults."""
