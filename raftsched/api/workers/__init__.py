"""Serve the routes of workers: leases, heartbeats, progress and outcomes."""
