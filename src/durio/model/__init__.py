"""Pure values and rules, without I/O, clock or async; every package may import them."""
