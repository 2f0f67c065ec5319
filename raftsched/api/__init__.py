"""The HTTP API of a node: JSON in, JSON or RFC 9457 problems out.

A request passes three gates before anything is changed: `http.bodies` bounds the bytes, `json.scan` checks the document
(encoding, nesting, duplicate keys, numbers that JSON does not have), `json.decode` fits it to the typed struct of its
route and names the field at fault. Only then is an operation proposed. One room per resource answers: `jobs`,
`schedules`, `workflows`, `queues`, `workers` and `cluster`. `app` makes the router from their routes, and `http.openapi`
the OpenAPI document.

Any node answers: `forwarder` passes requests that need the leader on to it. What the API needs of its node is the
protocol `backend.Backend`, so that tests run it over a state in memory.

Left out: tokens. Until there are some, callers say themselves who they are and for which tenant they speak.
"""
