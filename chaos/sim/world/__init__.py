"""A cluster of hosts, and what befalls it."""
