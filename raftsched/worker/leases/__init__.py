"""Keep leases alive from a thread of its own."""
