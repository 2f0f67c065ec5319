"""The load of a drill: users of raw HTTP at each node, workers, and processes with the SDK's Client and Worker."""
