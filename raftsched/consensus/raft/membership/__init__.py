"""Decide the members of the cluster, and identify them by handshakes."""
