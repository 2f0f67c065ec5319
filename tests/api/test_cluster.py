from __future__ import annotations

from tests.api.node import Api, SimulatedNode, serving


async def test_cluster_is_told_by_the_leader(api: Api, follower: Api) -> None:
    answer = await api.get("cluster")
    assert answer.json == {
        "leader": "n1",
        "term": 1,
        "nodes": [{"id": "n1", "api": api.node.api_url, "state": "leader", "applied": None, "clock_offset_ms": None}],
    }
    assert (await follower.get("cluster")).json == answer.json


async def test_cluster_is_told_by_a_node_that_cannot_reach_the_leader() -> None:
    leader = SimulatedNode()
    leader.api_url = "http://127.0.0.1:1"
    async with serving(SimulatedNode("n2", leader=leader)) as follower:
        answer = await follower.get("cluster")
        assert answer.status == 200
        assert [(node["id"], node["state"]) for node in answer.json["nodes"]] == [("n2", "follower")]


async def test_cluster_is_told_by_two_nodes_that_disagree(api: Api, follower: Api) -> None:
    answer = await follower.ask("GET", "cluster", headers={"Raftsched-Forwarded": "1"})
    assert answer.status == 200


async def test_transfer_hands_the_lead_over(api: Api, follower: Api) -> None:
    answer = await follower.ask("POST", "cluster/transfer")
    assert (answer.status, answer.json) == (200, {"transferred": True})
    assert api.node.handed_over == 1


async def test_transfer_that_nobody_takes_is_503(api: Api) -> None:
    api.node.takes_over = False
    answer = await api.ask("POST", "cluster/transfer")
    assert (answer.status, answer.code) == (503, "unavailable")


async def test_transfer_by_a_node_that_does_not_lead_is_503(api: Api) -> None:
    api.node.is_leading = False
    answer = await api.ask("POST", "cluster/transfer")
    assert (answer.status, answer.code) == (503, "not_leader")
    assert api.node.handed_over == 0
