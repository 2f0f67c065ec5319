"""One node: its parts wired together, its data directory, its start and its end."""
