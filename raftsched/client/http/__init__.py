"""Send requests to a cluster: nodes, retries, batches, problems."""
