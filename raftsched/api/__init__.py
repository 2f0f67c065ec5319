"""Serve the HTTP API of a node: JSON in, JSON or RFC 9457 problems out.

A request is checked in three steps before it changes anything. `http.bodies` limits its bytes. `json.scan` checks the
document: encoding, nesting, duplicate keys, numbers outside JSON. `json.decode` decodes it to the typed struct of its
route, and names the field at fault. Only then is an operation proposed. One folder per resource answers: `jobs`,
`schedules`, `workflows`, `queues`, `workers` and `cluster`. `app` builds the router from their routes, and
`http.openapi` the OpenAPI document.

Any node answers: `forwarder` forwards requests to the leader if they need it. The API uses its node through the
protocol `backend.Backend`, so that tests run it over a state in memory.

Left out: tokens. Until they exist, callers name themselves and their tenant.
"""
