"""Planted bugs of the engine: the simulator or the suite must catch each one."""
