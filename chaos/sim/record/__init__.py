"""Events of a world, and the log applied again."""
