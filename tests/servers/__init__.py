"""Real servers for the tests: started on free ports, in folders of their own, ended by pid."""
