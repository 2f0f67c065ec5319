"""Define the operations: the closed set of changes in the log."""
