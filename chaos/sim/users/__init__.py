"""Those who use a cluster: clients, workers, the receiver of what jobs do."""
