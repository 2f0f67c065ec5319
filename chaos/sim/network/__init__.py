"""Links between nodes, and the sockets that HTTP runs over."""
