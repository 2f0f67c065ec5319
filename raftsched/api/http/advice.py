"""What to do next, for each code that a problem can have: one sentence for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

ADVICE: Final[Mapping[str, str]] = {
    # the request
    "malformed": "Fix the field named in `field` and resend the request.",
    "invalid": "Fix the field named in `field` and resend the request.",
    "too_large": "Send less at once: split the request, or keep large data elsewhere and send where it is.",
    "unsupported_media_type": "Send the body as application/json, uncompressed, in UTF-8.",
    "method_not_allowed": "See the Allow header for the methods of this path, or /api/v1/openapi.json.",
    "expectation_failed": "Send the body without asking first.",
    # what is in the way
    "not_found": "Look the id up in the list; what was finished long ago is no longer kept.",
    "already_finished": "Read how it ended; retry it, or replay it if it is completed.",
    "completed": "Replay it: a new job with the same payload and a link to this one.",
    "running": "Wait for the end of the attempt, or cancel the job.",
    "paused": "Resume it first.",
    "waiting_dependencies": "Wait for the parents that explain names; a replay depends on nobody.",
    "dependency_unmet": "Retry the parent that is named first; or replay this job: a clone depends on nobody.",
    "exists": "Change the one that is there, or take another name.",
    "idempotency_mismatch": "Take a new key for another request; repeat the old one only with the very same body.",
    "unique_conflict": "Read the job that is named; submit again once it is finished, or ask for it with on_conflict: return.",
    "unknown_dependency": "Submit the parent first, and name it by its id; in a workflow by its task name.",
    "cycle": "Take away one of the dependencies between the members that are named.",
    "stale_revision": "Read it again, look at what has changed, and repeat the change with its new revision.",
    "stale_decision": "Read it again: it has changed since, and the request no longer fits.",
    "stale_part": "Submit the workflow again with the same idempotency key; what was stored of it is thrown away.",
    "not_started": "Wait until its workflow is whole, or submit the workflow again.",
    "needed": "Delete it once its key has expired, or its workflow and the jobs that depend on it have ended.",
    "limit_reached": "Remove what is no longer needed, or wait until some of it has ended.",
    # workers
    "lease_lost": "Stop the handler: the run belongs to somebody else, or has ended.",
    "already_recorded": "Do nothing: how the attempt ended is recorded.",
    "cancelled": "Stop the handler: the job is cancelled.",
    "log_full": "Send no more lines of this attempt; keep long logs elsewhere.",
    # the cluster
    "unavailable": "Send the same request again in a moment, with the same idempotency key.",
    "not_leader": "Send the same request again in a moment, to any node.",
    "no_majority": "Send the same request again, to another node; this one may be cut off from the others.",
    "disk_stalled": "Send the same request again, to another node; look at the disk of this one.",
    "outcome_unknown": "Send the same request again with the same idempotency key to learn what became of it.",
    "storage_full": "Free space on the disks of the nodes; workers may go on.",
    "upgrade_in_progress": "Finish the upgrade of all nodes, then send the request again.",
    "node_joining": "Wait until `cluster status` shows the joining node as a voter, and try again.",
    "majority_lost": "Start the nodes that are down first, or remove one of them.",
    "no_other_node": "Start another node, or wait until one keeps up.",
    "last_member": "Stop the node: a cluster has at least one.",
    "already_member": "Do nothing: the node is a member.",
    "id_used": "Take an id that no node of this cluster has had.",
    "address_used": "Take an address that no other node has.",
    "too_many_members": "Remove a node first.",
    "change_under_way": "Wait until the change of members is done, and try again.",
    "internal_error": "Look into the log of the node that answered.",
}
