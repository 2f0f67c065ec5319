"""Handle operations on who may use the cluster."""
