"""Run commands for jobs that name one: what may run, with which environment, and what its end means.

`executor` is the whole of it. `programs` decides what may run, `environment` makes the variables, `process` runs one
command under a `supervisor`, and `output` makes the log and the tails. A node never runs a command, only a worker that
was started for it.

Left out: other users, containers and cgroups. A command has the rights of its worker.
"""
