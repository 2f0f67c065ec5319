"""Directed schedules: the scripts, and the stage on which they play."""
