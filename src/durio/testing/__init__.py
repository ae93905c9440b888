"""For tests of jobs: a clock and an event loop in virtual time."""
