"""The pure heart of the scheduler: what a job is and how an operation changes it.

No I/O, no clock, no randomness, no event loop, no logging. Time, ids and jitter enter only through operations,
which the leader fills in; so every node that applies the same log reaches the same state.

Read in this order: ids, job, transitions, operations, view, retry, apply and the handlers it names, invariants.
"""
