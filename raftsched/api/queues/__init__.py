"""Queues: counts, settings, pauses."""
