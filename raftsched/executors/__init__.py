"""Execute the jobs that need no handler, by their kind: a worker takes an executor of a kind in place of handlers."""
