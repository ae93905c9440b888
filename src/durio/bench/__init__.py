"""The bench: measures a store on this machine, and the bare driver for comparison."""
