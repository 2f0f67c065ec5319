"""Workflows: submit, read, list, cancel."""
