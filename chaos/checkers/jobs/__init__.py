"""A life of a job: transitions, ends, effects, dependencies."""
