"""Schedules: save, preview, run, backfill, and apply from files."""
