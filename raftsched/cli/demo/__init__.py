"""The demo: the main job for real, a leader killed half-way, and every outcome checked against the truth.

`ledger` is the receiver outside the cluster that checks fencing tokens; `jobs` the worker's handlers; `plan` what is
submitted and how each job must end; `run` drives it; `report` compares.
"""
