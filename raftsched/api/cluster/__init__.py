"""Serve the routes of the cluster: members, health, events, audit trail."""
