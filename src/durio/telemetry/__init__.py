"""One emission per transition becomes logs, live events and hooks."""
