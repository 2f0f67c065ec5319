"""Leases: who gets which job, for how long, and within which limits."""
