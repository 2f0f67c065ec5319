"""Define what each role may do. Every route names one `Access`; there is no default."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from raftsched.core.records.api_token import Role


class Access(Enum):
    """Enumerate what a route asks of its caller."""

    PUBLIC = "public"
    """Nothing: no token is read."""
    CALLBACK = "callback"
    """The token of one run, which the handler checks."""
    SIGNED_IN = "signed in"
    """Any valid token."""
    READ = "read"
    """See jobs, schedules, workflows, queues, workers and events of the own tenant."""
    RESULT = "result"
    """See the result of a job and the graph of a workflow, which handlers read to get the results of parents."""
    SUBMIT = "submit"
    """Submit and control jobs, workflows and schedules of the own tenant, one at a time."""
    WORK = "work"
    """Lease jobs of the own tenant and report on them."""
    OPERATE = "operate"
    """Change many jobs at once, backfill, and change queues."""
    METRICS = "metrics"
    """Read the metrics of a node, which name the queues of all tenants: only tokens of all tenants. They are accepted
    while the node is cut off from the leader, too, for then metrics are needed most."""
    AUDIT = "audit"
    """Read the audit trail of the own tenant."""
    ADMIN = "admin"
    """Make, list and revoke tokens of the own tenant."""
    CLUSTER = "cluster"
    """Change the cluster itself: only admins of all tenants."""


ROLES: Final[Mapping[Access, frozenset[Role]]] = {
    Access.SIGNED_IN: frozenset(Role),
    Access.READ: frozenset({Role.VIEWER, Role.SUBMITTER, Role.OPERATOR, Role.ADMIN}),
    Access.RESULT: frozenset(Role),
    Access.SUBMIT: frozenset({Role.SUBMITTER, Role.OPERATOR, Role.ADMIN}),
    Access.WORK: frozenset({Role.WORKER, Role.ADMIN}),
    Access.OPERATE: frozenset({Role.OPERATOR, Role.ADMIN}),
    Access.METRICS: frozenset({Role.VIEWER, Role.SUBMITTER, Role.OPERATOR, Role.ADMIN}),
    Access.AUDIT: frozenset({Role.OPERATOR, Role.ADMIN}),
    Access.ADMIN: frozenset({Role.ADMIN}),
    Access.CLUSTER: frozenset({Role.ADMIN}),
}
"""The roles that may use a route. `PUBLIC` and `CALLBACK` ask for no token, so they are not here."""
OF_ALL_TENANTS: Final = frozenset({Access.CLUSTER, Access.METRICS})
"""The rights that only tokens of all tenants give."""
