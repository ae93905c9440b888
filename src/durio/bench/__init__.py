"""The bench: what a store reaches on this machine, beside the bare driver."""
