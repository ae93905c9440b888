"""The doctor: checks machine, store, queues, workers, settings and code for problems."""
