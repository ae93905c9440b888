"""The PostgreSQL store: any number of hosts, one truth."""
