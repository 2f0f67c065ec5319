"""The journal: the Raft log on disk."""
