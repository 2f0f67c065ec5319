"""What only the leading node does: find due jobs, lease them to workers, end leases that ran out, clean up.

The log is the truth; all that this package holds in memory is a hint about what to propose next. It is built from the
state when a node begins to lead and thrown away when it ends; an operation proposed on a stale hint is checked again
when it is applied, and refused.

`leadership` is the thin asyncio shell, `duties` wires the services together: `ready` over `buffer`, `lanes` and `gates`
(due jobs, in which order, and how many their queues' limits let through), `timers` over `wheel` (jobs that become due
soon), `dispatcher` (workers that wait), `lease_keeper`, `worker_marks`, `alarms`, `firing`, `chores`, `holds`,
`retention`, `trimming`. Each is a plain object that is stepped: it takes the time and what happened, and says what to
propose and when to call again.
"""
