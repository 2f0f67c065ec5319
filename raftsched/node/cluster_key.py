"""Compare the keys of a node with the key that the cluster's leader encrypts with.

Nodes with different keys work, each with its own files, until one gets a snapshot of another and can't read it. And a node
without keys keeps in the clear what the others encrypt. So neither is silent.
"""

from __future__ import annotations

from collections.abc import Sequence

from raftsched.core.records.encryption import ClusterKey
from raftsched.encryption.keys import FIELD, Key, KeyCheck, KeyMissing, require_keys


def require_cluster_key(cluster_key: ClusterKey | None, keys: Sequence[Key]) -> None:
    """Raise `KeyMissing` if a node must not start with `keys`: it has none, or other bytes under the id of the leader's.

    A key that is not there at all is a matter for `difference`: nodes get a new one after each other.
    """
    if cluster_key is None:
        return
    if not keys:
        raise KeyMissing(
            f"the nodes of this cluster encrypt their data, and {FIELD} is not set: give this node their file"
        )
    if cluster_key.key_id in {key.id for key in keys}:
        require_keys([KeyCheck(cluster_key.key_id, cluster_key.check)], keys, whose="the data of the leader")


def difference(cluster_key: ClusterKey | None, keys: Sequence[Key]) -> str:
    """Return how the keys of a node that runs differ from the leader's, for people; "" if they do not."""
    if cluster_key is None or cluster_key.key_id == (keys[0].id if keys else ""):
        return ""
    if not keys:
        return f"this node encrypts nothing, and the leader does: set {FIELD}, and restart it"
    if cluster_key.key_id not in {key.id for key in keys}:
        return (
            f"the keys file of this node lacks the leader's key {cluster_key.key_id}: add it, and send the node SIGHUP"
        )
    return f"the leader encrypts with the key {cluster_key.key_id}, this node with {keys[0].id}: give it the same file, and send it SIGHUP"
