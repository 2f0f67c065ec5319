"""Handle operations for deadlines, retention and queue settings."""
