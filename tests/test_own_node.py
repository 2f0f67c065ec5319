"""A machine's node is found by its host name."""

from __future__ import annotations

from raftsched.own_node import nodes_here

NODES = (("n1", "raftsched-0.nodes:8401"), ("n2", "Raftsched-1.nodes.jobs.svc:8401"), ("n10", "raftsched-10:8401"))


def test_node_is_found_by_its_short_or_long_host_name() -> None:
    names = {
        "raftsched-0": ["n1"],
        "raftsched-0.nodes.jobs.svc.cluster.local": ["n1"],
        "RAFTSCHED-1": ["n2"],
        "raftsched-1.other": [],
        "raftsched": [],
        "raftsched-10": ["n10"],
    }
    assert {name: nodes_here(NODES, name) for name in names} == names
    assert nodes_here([("a", "h:1"), ("b", "h:2"), ("c", ":3")], "h") == ["a", "b"]
