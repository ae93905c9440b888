"""The doctor: looks at machine, store, queues, workers, settings and code for trouble."""
