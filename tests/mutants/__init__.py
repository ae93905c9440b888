"""Planted bugs of the engine, each of which the simulator or the suite must catch."""
