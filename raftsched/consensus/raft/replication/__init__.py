"""Replicate the log and snapshots from the leader to its followers, and compare the states of the nodes."""
