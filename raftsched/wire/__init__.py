"""The documents of the HTTP API: one struct for each request and reply, shared by server, client and worker.

A module holds the requests and replies of one resource. It imports nothing of the server.

Requests are strict: decoding checks types and bounds, and rejects unknown fields, because a misspelt `max_attempts`
must not turn a limited job into an unlimited one. The OpenAPI document is generated from the same structs, so what is
published is what is enforced. `null` means the same as leaving an optional field out, except in an amendment, where it
removes what the job had. A `Raw` field is JSON of any kind, kept byte for byte.

Replies are encoded as they are. Times are RFC 3339 in UTC with milliseconds; `null` means that there is none.
"""
