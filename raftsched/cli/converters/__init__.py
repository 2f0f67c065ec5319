"""Convert schedules of other schedulers to a file for `raftsched apply`.

Each converter is a pure function from the text of a file to a `Report`: the schedules that it defines, and what of it
could not be kept. It reads its format by the rules of the program that runs it. If that program would reject a line, or if
programs disagree about it, the schedule is left out with the reason. So no schedule ever means something else than it
did before.

There are four kinds of findings. *error*: the file is not readable. *left out*: there is no such schedule. *not kept*: it
is there, without this setting. *note*: it is complete, but depends on something that the file does not say, such as the
time zone of a machine.

Three models of time are shared: `wall_times` holds sets of seconds, minutes, hours and days, and writes them as an
expression of ours, `go_cron` reads the expressions of Kubernetes and Dkron, `calendar_spec` those of systemd.
"""
