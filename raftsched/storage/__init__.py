"""The replicated state on disk: ordered tables, index entries derived from records, synced checkpoints, hot copies."""
