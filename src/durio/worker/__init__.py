"""Where work is done: claim, attempt, finish."""
