"""The pure heart of the scheduler: what a job is and how an operation changes it.

No I/O, no clock, no randomness, no event loop, no logging. Time, ids and jitter enter only through operations,
which the leader fills in; so every node that applies the same log reaches the same state.

Read in this order: `records`, `operations`, `state`, `apply` and the rooms whose handlers it lists (`jobs`, `schedules`,
`workflows`, `maintenance`), `checks`. `cron` computes fire times; `apply` never uses it.
"""
