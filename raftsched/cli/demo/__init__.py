"""The demo: jobs of every kind for real, the leader killed half-way, and every outcome checked against the truth.

`ledger` is the receiver outside the cluster that checks fencing tokens; `jobs` the worker's handlers; `plan` what is
submitted and how each job must end; `scenes` what is done to schedules, workflows and queues meanwhile; `run` drives it
and gathers the evidence; `report` judges that by `checks`; `board` shows how it goes.
"""
