"""Send the requests of HTTP jobs."""
