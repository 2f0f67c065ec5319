"""Promises to clients: what an answer means, and what is kept of it."""
