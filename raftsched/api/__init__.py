"""The HTTP API of a node: JSON in, JSON or RFC 9457 problems out.

A request passes three gates before anything is changed: `bodies` bounds the bytes, `scanning` judges the document
(encoding, nesting, duplicate keys, numbers that JSON does not have), `parsing` fits it to the typed struct of its route
and names the field at fault. Only then is an operation proposed. One module per noun answers: `jobs` (submit, read,
list), `controls` (what people make of one), `bulk` and `dead_letters` (of many), `job_records` (what became of one),
`workflows`, `leases`, `outcomes` and `running` (what workers say), `seed` (the first version's routes), `schedules`
with `schedule_runs`, `schedule_files` and `backfilling`, `queues` and `queue_settings`, `events`, `audit`, `workers`,
`cluster`, `health`. `routes` is the one table of what there is, from which both the router and the OpenAPI document are
made.

Any node answers: `forwarding` passes what needs the leader on to it. What the API needs of its node is the protocol
`backend.Backend`, so that tests run it over a state in memory.

Left out: tokens. Until there are some, callers say themselves who they are and for which tenant they speak.
"""
