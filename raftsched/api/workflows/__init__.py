"""Serve the routes of workflows: submit, read, list, cancel."""
