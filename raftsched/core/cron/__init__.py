"""Compute the fire times of schedules from texts. Pure: no I/O, clock, event loop, randomness or logging.

The package answers one question, "which is the first fire time after this time?", and only the leader asks it. The answer
is stored in an operation, so nodes with other zone or holiday data never compute it again while they apply the log.

**Expressions** are Vixie cron's: five fields (minute, hour, day of month, month, day of week), or six with the seconds
first. If both day fields are restricted, a day that satisfies either one matches. A day field that begins with `*`
restricts nothing by itself, so then both must be satisfied. Two rules are ours, and `parser` lists them all: `W` in a
month that lacks the day means no day, and a range can run over the end of its field.

**Clock changes.** A wall time fires once, when the clock first shows it or has passed it: on time if it exists, and right
after the gap if it does not. `dst_gap="skip"` drops the times that never exist, and `dst_overlap="both"` adds each later
time at which the clock shows it again. An expression whose hour field begins with `*` runs by elapsed time instead: it
fires whenever the wall time matches. So it neither loses nor doubles a firing in a repeated hour, and makes up nothing
after a skipped one.

**Fixed intervals** (`@every 90s`) do not depend on a wall clock: start + k · period.

Read in this order: fields, parser, expression, zones, recurrence, search, interval; then skips and calendar_rules. The
packaged zone and holiday data are the only input from outside; they are pinned, and cached once read.
"""
