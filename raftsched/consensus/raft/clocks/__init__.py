"""Measure time on one engine: the cluster's clock, round trips, and the contact with a majority."""
