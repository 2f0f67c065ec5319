"""When a schedule fires: text in, instants out. Pure: no I/O, clock, event loop, randomness or logging.

The package answers one question, "which is the first instant after this one?", and the leader asks it. What it answers
goes into an operation as an instant, so nodes whose zone or holiday data differ never compute it again while they apply
the log; apply may read `calendars`, which is plain records, and nothing else from here.

**Expressions** are Vixie cron's: five fields (minute, hour, day of month, month, day of week), or six with the seconds
first. Where both day fields are restricted, a day that satisfies either one matches; a day field that begins with `*`
restricts nothing by itself, so then both must be satisfied. Two readings are ours, and `parser` states them all:
`W` in a month that lacks the day means no day, and a range may run over the end of its field.

**Clock changes.** A wall time fires at the first instant at which the clock shows it or has passed it: once, on time
where it exists, and right after the gap where it does not. `dst_gap="skip"` drops the times that never exist, and
`dst_overlap="both"` adds each later instant at which the clock shows the time again. An expression whose hour field
begins with `*` runs by elapsed time instead: it fires at every instant whose wall time matches, so that it neither
loses nor doubles a firing in a repeated hour and catches nothing up after a skipped one.

**Fixed grids** (`@every 90s`) know no wall clock: start + k · period.

Read in this order: fields, parsing, expression, zones, recurrence, search, every; then calendars, skipping, checking.
Reading the packaged zone and holiday data is the only touch of the world; they are pinned, and kept once read.
"""
