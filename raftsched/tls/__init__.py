"""TLS: contexts from files, made again when the files change, and the names in certificates."""
