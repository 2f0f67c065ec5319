"""The command line. Every command is thin: it reads options, calls the client or a node, and prints."""
