"""Handle operations on jobs, in one module for each step of a job's life."""
