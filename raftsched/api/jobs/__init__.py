"""Serve the routes of jobs: submit, read, list, control, one or many."""
