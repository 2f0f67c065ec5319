"""Begin a new cluster with the state of one that is gone: from a backup, or from its only node that is left."""
