"""Seeded disasters in a simulated world, and the checks that nothing was lost."""
