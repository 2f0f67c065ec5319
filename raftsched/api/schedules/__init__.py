"""Serve the routes of schedules: save, preview, run, backfill, and apply from files."""
