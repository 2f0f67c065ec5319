"""Consensus, disks and states of the nodes."""
