"""Invariants of the state."""
