"""The demo: a small shop on real workers, one of which is killed, and a check of its jobs."""
