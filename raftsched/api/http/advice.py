"""Define the advice for each code of a problem: one sentence for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

ADVICE: Final[Mapping[str, str]] = {
    # the request
    "malformed": "Fix the field named in `field` and resend the request.",
    "invalid": "Fix the field named in `field` and resend the request.",
    "too_large": "Send less at once: split the request, or store large data elsewhere and send its location.",
    "unsupported_media_type": "Send the body as application/json, uncompressed, in UTF-8.",
    "method_not_allowed": "See the Allow header for the methods of this path, or /api/v1/openapi.json.",
    "expectation_failed": "Send the body without asking first.",
    "unauthorized": "Send a token that is valid: RAFTSCHED_TOKEN, or --token-file of the commands.",
    "forbidden": "Use a token with the named role, tenant or queue; an admin makes one by `raftsched token create`.",
    # conflicts with the state
    "not_found": "Look the id up in the list; jobs that finished long ago are no longer kept.",
    "already_finished": "Read its status; retry it, or replay it if it is completed.",
    "completed": "Replay it: a new job with the same payload and a link to this one.",
    "running": "Wait for the end of the attempt, or cancel the job.",
    "paused": "Resume it first.",
    "waiting_dependencies": "Wait for the parents that explain names; a replay has no dependencies.",
    "dependency_unmet": "Retry the named parent first; or replay this job: a clone has no dependencies.",
    "exists": "Change the existing one, or use another name.",
    "idempotency_mismatch": "Use a new key for another request; repeat the old one only with exactly the same body.",
    "unique_conflict": "Read the named job; submit again once it is finished, or get it by on_conflict: return.",
    "unknown_dependency": "Submit the parent first, and name it by its id; in a workflow by its task name.",
    "cycle": "Remove one of the dependencies between the named members.",
    "stale_revision": "Read it again, check what has changed, and repeat the change with its new revision.",
    "stale_decision": "Read it again: it has changed since, and the request no longer applies.",
    "stale_part": "Submit the workflow again with the same idempotency key; its stored jobs are discarded.",
    "not_started": "Wait until its workflow is complete, or submit the workflow again.",
    "needed": "Delete it once its key has expired, or its workflow and the jobs that depend on it have ended.",
    "quota_exceeded": "Send it again after the time in Retry-After, or ask an operator for a larger quota of the tenant.",
    "limit_reached": "Remove some that are no longer needed, or wait until some have ended.",
    # workers
    "lease_lost": "Stop the handler: another worker has the run, or it has ended.",
    "already_recorded": "Do nothing: the outcome of the attempt is recorded.",
    "cancelled": "Stop the handler: the job is cancelled.",
    "log_full": "Send no more lines of this attempt; keep long logs elsewhere.",
    # the cluster
    "unavailable": "Send the same request again in a moment, with the same idempotency key.",
    "not_leader": "Send the same request again in a moment, to any node.",
    "no_majority": "Send the same request again, to another node; this one may be isolated.",
    "disk_stalled": "Send the same request again, to another node; check the disk of this one.",
    "outcome_unknown": "Send the same request again with the same idempotency key to learn its result.",
    "storage_full": "Free space on the disks of the nodes; running jobs can be finished.",
    "upgrade_in_progress": "Finish the upgrade of all nodes, then send the request again.",
    "node_joining": "Wait until `cluster status` shows the joining node as a voter, and try again.",
    "majority_lost": "Start the nodes that are down first, or remove one of them.",
    "no_other_node": "Start another node, or wait until one has caught up.",
    "node_unfit": "Name another node, or none; see what is wrong with it by `cluster status`.",
    "last_member": "Stop the node: a cluster has at least one.",
    "already_member": "Do nothing: the node is a member.",
    "id_used": "Use an id that no node of this cluster has had.",
    "address_used": "Use an address that no other node has.",
    "too_many_members": "Remove a node first.",
    "backup_under_way": "Ask another node, or try again when the other backup is done.",
    "change_under_way": "Wait until the change of members is done, and try again.",
    "encryption_off": "Set [encryption] keys_file on the node, and restart it.",
    "encryption_key_missing": "Put the named key into the keys file of the node that answered, and restart it.",
    "data_unreadable": "Ask another node, and replace the one that answered: its disk was changed.",
    "internal_error": "Read the log of the node that answered. A change may have taken effect: send it again with the same "
    "idempotency key to learn that.",
}
