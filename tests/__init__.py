"""What Durio promises, and the tests that try to break it."""
