"""The HTTP API of a node: JSON in, JSON or RFC 9457 problems out.

A request passes three gates before anything is changed: `bodies` bounds the bytes, `scanning` judges the document
(encoding, nesting, duplicate keys, numbers that JSON does not have), `parsing` fits it to the typed struct of its route
and names the field at fault. Only then is an operation proposed. One module per noun answers: `jobs` and `listing`,
`leases` and `outcomes`, `queues`, `workers`, `cluster`, `health`. `routes` is the one table of what there is, from
which both the router and the OpenAPI document are made.

Any node answers: `forwarding` passes what needs the leader on to it. What the API needs of its node is the protocol
`backend.Backend`, so that tests run it over a state in memory.

Left out: tokens and tenants (every job belongs to `backend.TENANT_DEFAULT`), schedules, workflows, events.
"""
