"""The hall's bell: one emission per transition becomes logs and hooks."""
