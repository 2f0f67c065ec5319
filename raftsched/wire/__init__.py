"""Documents of the HTTP API: requests and replies, shared by server, client and worker."""
