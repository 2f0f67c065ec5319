"""Ready jobs, and the workers that wait for them."""
