"""The command line: what people touch. Every command is thin: it reads options, calls the client or a node, prints."""
