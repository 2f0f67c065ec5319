"""Serve the routes of queues: counts, settings, pauses."""
