"""Schedules and the instants that they decide."""
