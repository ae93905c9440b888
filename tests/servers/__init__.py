"""Real servers for the tests: on free ports, in their own folders, ended by pid."""
