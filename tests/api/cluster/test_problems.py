"""What is wrong with a cluster is said by code, with the node, in words, and with the time since when."""

from __future__ import annotations

from msgspec.structs import replace

from raftsched.api.cluster.problems import LAG_ENTRIES, Sightings, find, health_of, since_of
from raftsched.wire.cluster import CertificateStatus, ClusterStatus, NodeFacts, NodeStatus

FACTS = NodeFacts(id="n1", release="1.0", is_ready=True)
NODES = tuple(
    NodeStatus(f"n{number}", state="leader" if number == 1 else "follower", raft=f"h{number}:1", facts=FACTS)
    for number in (1, 2, 3)
)
WELL = ClusterStatus(leader="n1", nodes=NODES, answered_by="n1")


def third(**changes: object) -> ClusterStatus:
    """The cluster in which the third node is otherwise."""
    return replace(WELL, nodes=(*NODES[:2], replace(NODES[2], **changes)))


def third_says(**changes: object) -> ClusterStatus:
    return third(facts=replace(FACTS, **changes))


def certificate(days_left: int) -> ClusterStatus:
    return third_says(certificates=(CertificateStatus(setting="api_tls", expires_at="t", days_left=days_left),))


def test_problems_are_told_by_code_and_decide_the_health() -> None:
    down = third(state="down", facts=None)
    cases = {
        "healthy": (WELL, "healthy", []),
        "no leader": (replace(down, leader=""), "down", [("no_leader", None), ("node_down", "n3")]),
        "leader not reached": (replace(WELL, answered_by="n2"), "degraded", [("no_contact", None)]),
        "full disks": (replace(WELL, warning="too few"), "down", [("new_work_refused", None)]),
        "node down": (down, "degraded", [("reserve", None), ("node_down", "n3")]),
        "differs": (third(state="differs"), "degraded", [("node_differs", "n3")]),
        "behind": (third(lag=LAG_ENTRIES + 1), "degraded", [("node_behind", "n3")]),
        "nearly up to date": (third(lag=LAG_ENTRIES), "healthy", []),
        "joins": (third(voter=False), "healthy", [("node_joins", "n3")]),
        "silent, low disk": (third(facts=None, disk_low=True), "degraded", [("disk", "n3"), ("facts_missing", "n3")]),
        "other release": (third_says(release="1.1"), "healthy", [("releases_differ", None)]),
        "own words": (third_says(warnings={"clock": "off by 3"}), "degraded", [("clock", "n3")]),
        "certificate": (certificate(13), "degraded", [("certificate_expires", "n3")]),
        "certificate is good": (certificate(14), "healthy", []),
        "expired": (certificate(-1), "degraded", [("certificate_expired", "n3")]),
    }
    wrong = {}
    for name, (status, health, codes) in cases.items():
        problems = find(status, were_asked=True)
        found = (health_of(problems), [(problem.code, problem.node) for problem in problems])
        if found != (health, codes) or not all(problem.cure and problem.text for problem in problems):
            wrong[name] = found
    assert wrong == {}


def test_a_problem_is_told_with_the_time_since_when_it_was_seen_without_a_break() -> None:
    sightings = Sightings()
    down = find(third(voter=False, state="down"))[:1]
    first = sightings.look(down, 1_000)
    assert [problem.since for problem in first] == ["1970-01-01T00:00:01.000Z"]
    assert sightings.look(down, 5_000) == first
    later = since_of(first, find(replace(third(state="down"), leader="")))
    assert [problem.since for problem in later] == [None, first[0].since]
    sightings.look((), 6_000)
    assert [problem.since for problem in sightings.look(down, 7_000)] == ["1970-01-01T00:00:07.000Z"]
