"""Elect a leader, confirm that it still leads, and transfer leadership."""
