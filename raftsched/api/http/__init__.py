"""Provide the parts of HTTP that every route uses: server, bodies, routes, problems, consistency of reads."""
