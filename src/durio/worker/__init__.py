"""The worker: claims jobs, runs attempts, records outcomes."""
