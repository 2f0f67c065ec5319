"""Execute handlers: on the loop, in threads, in processes."""
