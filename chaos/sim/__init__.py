"""The deterministic simulator: whole nodes, running production code, in one process and in virtual time.

    loop.py       an asyncio event loop for each simulated process, all driven by one timeline
    network.py    links between nodes that carry real frames
    storage.py    the node's disk and its state, which forget what was not synced
    node.py       `raftsched.node.node.Node` with simulated ports
    host.py       the machine of a node, and the process that runs on it
    workload.py   clients, workers, and a receiver that checks fencing tokens
    faults.py     what befalls the cluster
    operator.py   who changes its members
    world.py      one seed's world, from birth to verdict
    recorder.py   what happened, for the checkers
    rates.py      what a seed decides beforehand
    planted/      faults of our own making, which must be found, and directed schedules
    scoring.py    how many of them are found
    runner.py     many seeds on all cores

Left out: HTTP, TLS and sockets (`chaos/README.md` lists all that is not covered).
"""
