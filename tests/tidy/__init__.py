"""Rules that keep the code readable; each failure says what to do."""
