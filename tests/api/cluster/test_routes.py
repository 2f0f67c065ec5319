from __future__ import annotations

import asyncio

import pytest

from raftsched.wire.cluster import NodeStatus
from tests.api.node import Api, SimulatedNode, serving


async def test_cluster_is_told_by_the_leader(api: Api, follower: Api) -> None:
    answer = await api.get("cluster")
    assert answer.json == {
        "leader": "n1",
        "term": 1,
        "nodes": [
            {
                "id": "n1",
                "api": api.node.api_url,
                "state": "leader",
                "applied": None,
                "clock_offset_ms": None,
                "round_trip_ms": None,
                "raft": "",
                "voter": True,
                "operations_read": 2,
                "disk_free_bytes": None,
                "disk_low": None,
                "lag": None,
                "facts": (await api.get("cluster/node")).json,
            }
        ],
        "operation_version": 1,
        "warning": "",
        "answered_by": "n1",
        "health": "healthy",
        "problems": [],
        "workers": 0,
        "last_backup": None,
    }
    assert (await follower.get("cluster")).json == answer.json


async def test_cluster_is_told_by_a_node_that_cannot_reach_the_leader() -> None:
    leader = SimulatedNode()
    leader.api_url = "http://127.0.0.1:1"
    async with serving(SimulatedNode("n2", leader=leader)) as follower:
        answer = await follower.get("cluster")
        assert answer.status == 200
        assert [(node["id"], node["state"]) for node in answer.json["nodes"]] == [("n2", "follower")]
        assert answer.json["answered_by"] == "n2"
        assert [(each["code"], each["severity"]) for each in answer.json["problems"]] == [("no_contact", "warning")]


async def test_cluster_is_told_with_the_facts_of_all_nodes_that_are_up(api: Api, follower: Api) -> None:
    nobody = "http://127.0.0.1:1"
    api.node.other_nodes = (
        NodeStatus("n2", follower.node.api_url, "follower"),
        NodeStatus("n3", nobody, "follower"),
        NodeStatus("n4", nobody, "down"),
    )
    answer = (await follower.get("cluster")).json
    assert [node["facts"] and node["facts"]["id"] for node in answer["nodes"]] == ["n1", "n2", None, None]
    assert answer["health"] == "degraded"
    assert [(each["code"], each["node"]) for each in answer["problems"]] == [
        ("reserve", None),
        ("node_down", "n4"),
        ("facts_missing", "n3"),
    ]


async def test_facts_of_a_node_that_is_far_are_waited_for_as_long_as_its_round_trips_take(api: Api) -> None:
    late = 0.5

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reply = b'HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n{"id":"n2"}'
        asyncio.get_running_loop().call_later(late, writer.write, reply)

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as far:
        port = far.sockets[0].getsockname()[1]
        api.node.other_nodes = (NodeStatus("n2", f"http://127.0.0.1:{port}", "follower"),)
        for round_trip_ms, expected in ((0, None), (500, "n2")):
            api.node.longest_round_trip_ms = round_trip_ms
            _, told = (await api.get("cluster")).json["nodes"]
            assert (told["facts"] and told["facts"]["id"]) == expected


async def test_cluster_is_told_by_two_nodes_that_disagree(api: Api, follower: Api) -> None:
    answer = await follower.ask("GET", "cluster", headers={"Raftsched-Forwarded": "1"})
    assert answer.status == 200


async def test_transfer_hands_the_lead_over(api: Api, follower: Api) -> None:
    api.node.other_nodes = (NodeStatus("n2", "", "follower"),)
    answer = await follower.ask("POST", "cluster/transfer")
    assert (answer.status, answer.json) == (200, {"transferred": True})
    assert api.node.transfer_count == 1


async def test_transfer_to_a_named_node_is_done_or_refused_with_the_reason(api: Api, follower: Api) -> None:
    api.node.other_nodes = (
        NodeStatus("n2", "", "follower"),
        NodeStatus("n3", "", "down"),
        NodeStatus("n4", "", "follower", voter=False),
        NodeStatus("n5", "", "follower", disk_low=True),
        NodeStatus("n6", "", "differs"),
    )
    cases = {
        "n2": (200, "", "n2"),
        "n1": (200, "", ""),
        "n3": (409, "node_unfit", ""),
        "n4": (409, "node_joining", ""),
        "n5": (409, "node_unfit", ""),
        "n6": (409, "node_unfit", ""),
        "n9": (404, "not_found", ""),
        "../n2": (400, "malformed", ""),
    }
    found = {}
    for node_id in cases:
        api.node.transferred_to = ""
        answer = await follower.post("cluster/transfer", {"to": node_id})
        found[node_id] = (answer.status, "" if answer.status == 200 else answer.code, api.node.transferred_to)
    assert found == cases


async def test_transfer_that_can_not_be_says_why(api: Api) -> None:
    alone = await api.ask("POST", "cluster/transfer")
    assert (alone.status, alone.code, api.node.transfer_count) == (409, "no_other_node", 0)
    api.node.other_nodes = (NodeStatus("n2", "", "follower"),)
    api.node.takes_over = False
    not_taken = await api.ask("POST", "cluster/transfer")
    assert (not_taken.status, not_taken.code, api.node.transfer_count) == (503, "unavailable", 1)
    api.node.is_leading = False
    for method, path in (("POST", "cluster/transfer"), ("DELETE", "cluster/members/n4")):
        refused = await api.ask(method, path)
        assert (refused.status, refused.code, api.node.transfer_count) == (503, "not_leader", 1)


async def test_a_node_that_joins_is_listed_as_no_voter_yet(api: Api, follower: Api) -> None:
    answer = await follower.post("cluster/members", {"id": "n4", "raft": "h4:8401", "api": "h4:8400"})
    assert answer.status == 200
    assert [(node["id"], node["raft"], node["voter"]) for node in answer.json["nodes"]] == [
        ("n1", "127.0.0.1:8401", True),
        ("n4", "h4:8401", False),
    ]


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"id": "n1", "raft": "h4:8401", "api": "h4:8400"}, 409, "already_member"),
        ({"id": "n4", "raft": "127.0.0.1:8401", "api": "h4:8400"}, 409, "address_used"),
        ({"id": "n4", "raft": "h4", "api": "h4:8400"}, 422, "invalid"),
        ({"id": "../n4", "raft": "h4:8401", "api": "h4:8400"}, 400, "malformed"),
        ({"id": "n4", "raft": "h4:8401"}, 400, "malformed"),
    ],
)
async def test_a_node_that_can_not_join_is_refused(api: Api, body: dict[str, str], status: int, code: str) -> None:
    answer = await api.post("cluster/members", body)
    assert (answer.status, answer.code) == (status, code)


async def test_a_removed_node_is_gone_and_its_id_is_used_up(api: Api) -> None:
    node = {"id": "n4", "raft": "h4:8401", "api": "h4:8400"}
    await api.post("cluster/members", node)
    answer = await api.ask("DELETE", "cluster/members/n4")
    assert (answer.status, [each["id"] for each in answer.json["nodes"]]) == (200, ["n1"])
    assert (await api.ask("DELETE", "cluster/members/n4")).code == "not_found"
    assert (await api.post("cluster/members", node)).code == "id_used"
    last = await api.ask("DELETE", "cluster/members/n1")
    assert (last.status, last.code) == (409, "last_member")
