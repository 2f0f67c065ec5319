"""Drills: real node processes under load, faults that strike them, and the checkers' verdict on what was seen.

Theory of operation. The simulator proves the logic; drills prove the rest: sockets, disks, kernels, HTTP, the SDK. A
drill starts a cluster on a *backend* (`backends`), which decides what can be cut and filled. Users and workers (`load`)
ask it all the time, and record each request as events of `chaos.checkers` (`history`). In each round a *fault* (`faults`)
strikes and heals (`rounds`). At the end the logs of the nodes are read back from their disks, and the checkers judge
(`verdict`). What a backend can't do is skipped, printed, and never counted as survived.
"""
