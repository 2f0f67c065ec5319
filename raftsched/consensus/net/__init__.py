"""Connect nodes with each other."""
