"""Running leases, and the evidence that their workers live."""
