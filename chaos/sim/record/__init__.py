"""What happened in a world, and the log applied again."""
