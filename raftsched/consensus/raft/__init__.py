"""Raft over pysyncobj: elections, replication, configuration, snapshots, cluster time."""
