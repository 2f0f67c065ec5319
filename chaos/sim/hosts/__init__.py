"""Machines, the nodes that run on them, and their releases."""
