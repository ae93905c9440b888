"""People who want work done: enqueue, wait, cancel, retry."""
