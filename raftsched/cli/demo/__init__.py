"""The demo: real jobs of every kind, the leader killed half-way, and every outcome checked.

`ledger` is the receiver outside the cluster that checks fencing tokens; `jobs` the worker's handlers; `plan` has the
jobs to submit and how each must end; `scenes` acts on schedules, workflows and queues meanwhile; `run` drives it and
gathers the evidence; `report` judges that by `checks`; `board` shows the progress.
"""
