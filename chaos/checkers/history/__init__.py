"""The history that is judged: its events as the harness writes them, and the views that checkers read."""
