"""Define the documents of the HTTP API: one struct for each request and reply, for server, client and worker.

A module holds the requests and replies of one resource. It imports nothing of the server.

Requests are strict: decoding checks types and bounds, and rejects unknown fields. A misspelt `max_attempts` must not
turn a limited job into an unlimited one. The OpenAPI document is generated from the same structs, so the published
rules are the enforced ones. `null` means the same as leaving an optional field out; in an amendment it removes the
job's value. A `Raw` field is JSON of any kind, kept byte for byte.

Replies are encoded as they are. Times are RFC 3339 in UTC with milliseconds; `null` means that there is none.
"""
