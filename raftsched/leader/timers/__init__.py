"""Timers of the leader."""
