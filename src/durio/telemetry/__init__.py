"""Events of the engine, which become logs, live events and hooks."""
