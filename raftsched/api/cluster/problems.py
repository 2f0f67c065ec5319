"""Judge a cluster's status: what is wrong, since when, and what to do, in words for the person on call.

Pure: `find` reads one status, and `Sightings` remembers how long each problem was seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from msgspec.structs import replace

from raftsched.api.http.json_reply import time_text
from raftsched.wire.cluster import ClusterProblem, ClusterStatus, NodeFacts, NodeStatus

LAG_ENTRIES: Final = 10_000
"""A follower that lacks more entries is a warning: it could not take over at once."""
CERTIFICATE_DAYS: Final = 14
_SEVERITIES: Final = ("critical", "warning", "note")
_CURES: Final = {
    "no_leader": "Start the nodes that are down, or restore the network between them; a majority of voters must be up. "
    "If their disks are lost for good, see `raftsched cluster recover`.",
    "no_contact": "Ask another node. If none answers, look at this node's network, and run `raftsched doctor` on its machine.",
    "new_work_refused": "Free disk space on the named nodes.",
    "reserve": "Start the nodes that are down, or replace them.",
    "node_down": "Look at its process and its log, and run `raftsched doctor` on its machine. If its disk is lost, run "
    "`raftsched cluster remove` and add a node under a new id.",
    "node_differs": "Replace it: `raftsched cluster remove`, then add a node under a new id.",
    "node_behind": "Wait if it has just started. Else look at the speed of its disk and network with `raftsched doctor`.",
    "facts_missing": "Ask again in a moment. If it persists, look at its API port and its log.",
    "not_ready": "Look at its log.",
    "clock": "Look at the time synchronisation of its machine (chrony or ntpd).",
    "round_trip": "Look at the network between the nodes, or set larger timeouts.",
    "disk": "Free disk space on its machine, or shorten retention.",
    "encryption": "Give all nodes the same keys file.",
    "state": "Watch it: a node whose state differs must be replaced.",
    "certificate_expired": "Write new files now; nodes use them without a restart.",
    "certificate_expires": "Write new files; nodes use them without a restart.",
    "releases_differ": "Finish the upgrade: restart the other nodes with the new release.",
    "node_joins": "Wait: it becomes a voter by itself when it has nearly all of the log.",
}


def find(status: ClusterStatus, *, were_asked: bool = False) -> tuple[ClusterProblem, ...]:
    """Return the problems of a status, the worst first; `were_asked` says that all nodes were asked for their facts."""
    found = [*_of_cluster(status), *(problem for node in status.nodes for problem in _of_node(node))]
    if were_asked:
        found += _silent(status)
    return tuple(sorted(found, key=lambda problem: _SEVERITIES.index(problem.severity)))


def health_of(problems: Iterable[ClusterProblem]) -> str:
    """Return `down`, `degraded` or `healthy`."""
    severities = {problem.severity for problem in problems}
    return "down" if "critical" in severities else "degraded" if "warning" in severities else "healthy"


def _of_cluster(status: ClusterStatus) -> Iterator[ClusterProblem]:
    voters = [node for node in status.nodes if node.voter]
    down = [node.id for node in voters if node.state == "down"]
    needed = len(voters) // 2 + 1
    if not status.leader:
        reason = (
            f": {needed} of {len(voters)} voters must be up, and {', '.join(down)} can't be reached" if down else ""
        )
        yield _problem("critical", "no_leader", f"no leader is known, so nothing is accepted{reason}")
    elif status.answered_by != status.leader:
        told = f"{status.answered_by} answers by itself, since it can't reach the leader {status.leader}"
        yield _problem("warning", "no_contact", told)
    if status.warning:
        yield _problem("critical", "new_work_refused", status.warning)
    elif status.leader and down:
        yield _problem("warning", "reserve", f"{_loss(len(voters) - len(down) - needed)}: down are {', '.join(down)}")
    releases = {node.facts.release for node in status.nodes if node.facts is not None}
    if len(releases) > 1:
        yield _problem("note", "releases_differ", f"nodes run different releases: {', '.join(sorted(releases))}")


def _loss(spare_count: int) -> str:
    if spare_count <= 0:
        return "the loss of one more node stops the cluster"
    return f"the cluster continues if {spare_count} more {'node is' if spare_count == 1 else 'nodes are'} lost"


def _of_node(node: NodeStatus) -> Iterator[ClusterProblem]:
    if node.state == "down":
        yield _problem("warning", "node_down", f"{node.id} ({node.raft}) can't be reached", node)
    elif node.state == "differs":
        told = f"the state of {node.id} is not that of the majority; it serves nothing"
        yield _problem("warning", "node_differs", told, node)
    if node.lag is not None and node.lag > LAG_ENTRIES:
        yield _problem("warning", "node_behind", f"{node.id} is {node.lag:,} log entries behind the leader", node)
    if not node.voter:
        yield _problem("note", "node_joins", f"{node.id} joins, and has no vote yet", node)
    if node.facts is not None:
        yield from _of_facts(node, node.facts)
    elif node.disk_low:
        yield _problem("warning", "disk", f"the disk of {node.id} is nearly full", node)


def _of_facts(node: NodeStatus, facts: NodeFacts) -> Iterator[ClusterProblem]:
    for code, text in facts.warnings.items():
        yield _problem("warning", code, f"{node.id}: {text}", node)
    for certificate in facts.certificates:
        days = certificate.days_left
        if days < 0:
            told = f"the certificate of {node.id} in [{certificate.setting}] has expired: {certificate.expires_at}"
            yield _problem("warning", "certificate_expired", told, node)
        elif days < CERTIFICATE_DAYS:
            told = f"the certificate of {node.id} in [{certificate.setting}] expires in {days} days"
            yield _problem("warning", "certificate_expires", told, node)


def _silent(status: ClusterStatus) -> Iterator[ClusterProblem]:
    for node in status.nodes:
        if node.facts is None and node.state != "down":
            yield _problem(
                "warning", "facts_missing", f"the API of {node.id} ({node.api}) did not answer in time", node
            )


def _problem(severity: str, code: str, text: str, node: NodeStatus | None = None) -> ClusterProblem:
    node_id = None if node is None else node.id
    return ClusterProblem(code=code, severity=severity, node=node_id, text=text, since=None, cure=_CURES[code])


class Sightings:
    """The time from which each problem was seen without a break, by code and node."""

    def __init__(self) -> None:
        self._since: dict[tuple[str, str | None], str] = {}

    def look(self, problems: Iterable[ClusterProblem], now_ms: int) -> tuple[ClusterProblem, ...]:
        """Note the problems of now; return each with its time. Those that are gone are forgotten."""
        seen = tuple(problems)
        now = time_text(now_ms)
        self._since = {_key(problem): self._since.get(_key(problem), now) for problem in seen}
        return tuple(replace(problem, since=self._since[_key(problem)]) for problem in seen)


def since_of(seen: Iterable[ClusterProblem], problems: Iterable[ClusterProblem]) -> tuple[ClusterProblem, ...]:
    """Return `problems`, each with the time at which `seen` has it."""
    times = {_key(problem): problem.since for problem in seen}
    return tuple(replace(problem, since=times.get(_key(problem))) for problem in problems)


def _key(problem: ClusterProblem) -> tuple[str, str | None]:
    return (problem.code, problem.node)
