"""Requests to a cluster: nodes, retries, batches, problems."""
