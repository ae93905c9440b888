"""The real machine: its clock, threads, processes and signals."""
