"""Define the records of the scheduler, and how operations change them, as pure functions.

No I/O, no clock, no randomness, no event loop, no logging. Time, ids and jitter enter only through operations, which the
leader fills in. So every node that applies the same log gets the same state.

Read in this order: `records`, `operations`, `state`, `apply` and the packages of its handlers (`jobs`, `schedules`,
`workflows`, `maintenance`), `checks`. `cron` computes fire times; `apply` never uses it.
"""
