"""The deterministic simulator: whole nodes, running production code, in one process and in virtual time.

    machine/     the clock, an asyncio event loop for each process, and a disk that forgets what was not synced
    network/     links between nodes that carry real frames, and sockets that HTTP runs over
    record/      what happened, for the checkers, and the log applied again
    rates.py     what a seed decides beforehand; features.py, what its users do beside plain jobs
    hosts/       `raftsched.node.node.Node` with simulated ports, the process that it runs in, and the machine below
    world/       a cluster of hosts, what befalls it, and who changes its members or their release
    users/       clients, workers, and a receiver that checks fencing tokens
    run/         one seed, from birth to verdict
    planted/     faults of our own making, which must be found, and directed schedules
    campaign/    many seeds on all cores, and how many of the planted faults are found
    engine/      bare consensus engines without the rest of a node, for directed tests

Each room imports from those above it in this list only. Left out: TLS and the kernel's sockets (`chaos/README.md` lists
all that is not covered).
"""
