"""Handlers as users write them, and the objects that they see."""
