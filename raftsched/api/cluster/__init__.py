"""The cluster: members, health, events, audit trail."""
