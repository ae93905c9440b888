"""A clock and an event loop in virtual time, for tests of jobs."""
