"""What tests of jobs need: a jumping clock, a faulty store, conformance."""
