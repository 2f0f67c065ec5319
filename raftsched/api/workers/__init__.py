"""Workers: leases, heartbeats, progress and outcomes."""
