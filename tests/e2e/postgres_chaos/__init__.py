"""Chaos between real processes and a real PostgreSQL: restarts, kills, cut connections."""
