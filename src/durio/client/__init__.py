"""The client side: enqueue jobs, wait for them, cancel and retry them."""
