"""Store the Raft log on disk."""
