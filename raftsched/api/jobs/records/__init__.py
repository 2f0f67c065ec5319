"""Serve the records of a job: its runs, history and logs, and the reasons why it waits."""
