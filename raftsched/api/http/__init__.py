"""HTTP as every route uses it: server, bodies, routes, problems, consistency of reads."""
