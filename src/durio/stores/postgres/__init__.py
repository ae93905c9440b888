"""The PostgreSQL store: workers on any number of hosts share one database."""
