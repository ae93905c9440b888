"""Sustained load on real workers while things go wrong, measured and judged."""
