"""Define the state as `apply` reads it, and the writes that it returns."""
