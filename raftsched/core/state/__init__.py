"""The state as `apply` reads it, and what it returns to be written."""
