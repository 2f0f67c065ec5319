"""Do the leader's work: find due jobs, lease them to workers, end expired leases, clean up.

The log is authoritative; all that this package holds in memory is a hint about what to propose next. It is built from
the state when a node begins to lead and discarded when it stops leading. An operation that was proposed on a stale hint
is checked again when it is applied, and rejected.

`leadership` is the thin asyncio shell, `duties` wires the services together: in `dispatch` `ready` over `buffer`,
`lanes` and `limits` (due jobs, their order, and how many of them their queues' limits allow), `due_jobs` over
`timers.wheel` (jobs that become due soon) and `dispatcher` (workers that wait); beside it `leases`, `timers`,
`schedules` and `maintenance`. Each is a plain object that is stepped: it takes the time and what happened, and returns what
to propose and when to call again.
"""
