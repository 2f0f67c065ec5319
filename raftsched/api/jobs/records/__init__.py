"""Serve a job and its records: its result, runs, history and logs, and the reasons why it waits."""
