"""Run a command of an existing crontab as a job: here, under a lock, with log, history and hooks.

From the outside in: `command` (the command line), `registered` (the job, and the one-off worker that runs it in this
process), `execution` (the command with the terminal of this process). Without a cluster `execution` runs alone.
"""
