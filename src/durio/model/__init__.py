"""Pure values and rules, without I/O, clock or async; every room may import them."""
