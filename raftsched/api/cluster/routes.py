"""Show the cluster's leader and nodes, change its members, and transfer leadership.

The leader knows most, so other nodes ask it. But operators need an answer in an outage, so a node that cannot reach the
leader in time answers from its own knowledge. Whoever answers asks each node that is up for its facts, and waits
`_FACTS_SECONDS` and a few round trips at most.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec
import structlog
from aiohttp import web
from msgspec.structs import replace

from raftsched.api.access.rules import Access
from raftsched.api.backend import Backend
from raftsched.api.cluster.backup import backup_status
from raftsched.api.cluster.problems import find, health_of, since_of
from raftsched.api.forwarder import Forwarder
from raftsched.api.http.bodies import Bodies
from raftsched.api.http.json_reply import json_response
from raftsched.api.http.routes import BASE_PATH, Answered, Route, route
from raftsched.api.json.decode import StructDecoder
from raftsched.consensus.net.address import Address
from raftsched.errors import NotFound, Rejected, Unavailable
from raftsched.wire.cluster import (
    ClusterStatus,
    EncryptionStatus,
    MemberRequest,
    MembersReply,
    NodeFacts,
    NodeStatus,
    TransferReply,
    TransferRequest,
)

_FACTS_SECONDS: Final = 0.4
"""Time in which a node that is near tells its facts."""
_ROUND_TRIPS: Final = 3
"""Of a request on a new connection: TCP, TLS, the request itself."""
_FACTS_PATH: Final = "/cluster/node"
_decode_facts: Final = msgspec.json.Decoder(NodeFacts).decode
_log = structlog.get_logger()


class Cluster:
    """The routes of the cluster."""

    def __init__(self, backend: Backend, bodies: Bodies, forwarder: Forwarder) -> None:
        self._backend = backend
        self._bodies = bodies
        self._forwarder = forwarder
        self._member = StructDecoder(MemberRequest)
        self._transfer = StructDecoder(TransferRequest)

    def routes(self) -> tuple[Route, ...]:
        return (
            route(Access.SIGNED_IN, "GET", "/cluster", self.get_cluster, ClusterStatus, answered=Answered.HERE),
            route(Access.SIGNED_IN, "GET", _FACTS_PATH, self.get_node, NodeFacts, answered=Answered.HERE),
            route(
                Access.CLUSTER,
                "POST",
                "/cluster/transfer",
                self.transfer_leadership,
                TransferReply,
                body=TransferRequest,
            ),
            route(Access.CLUSTER, "POST", "/cluster/members", self.add_member, MembersReply, body=MemberRequest),
            route(Access.CLUSTER, "DELETE", "/cluster/members/{id}", self.remove_member, MembersReply),
            route(
                Access.CLUSTER,
                "GET",
                "/cluster/encryption",
                self.get_encryption,
                EncryptionStatus,
                answered=Answered.HERE,
            ),
            route(
                Access.CLUSTER,
                "POST",
                "/cluster/encryption/rotate",
                self.rotate_key,
                EncryptionStatus,
                answered=Answered.HERE,
            ),
        )

    async def get_cluster(self, request: web.Request) -> web.Response:
        """Read what is wrong, the leader and the state of each node, as seen by the leader if it can be reached."""
        try:
            leader_url = self._forwarder.leader_elsewhere(request)
            if leader_url is not None:
                return await self._forwarder.forward(request, leader_url, wait_seconds=2 * self._facts_seconds())
        except Unavailable as error:
            _log.debug("leader_not_asked", error=str(error))
        return json_response(await self._status(request))

    async def get_node(self, request: web.Request) -> web.Response:
        """Read what the asked node says of itself."""
        del request
        return json_response(self._backend.facts())

    async def _status(self, request: web.Request) -> ClusterStatus:
        """Return this node's view, with the facts of all nodes that answer in time."""
        backend = self._backend
        seen = backend.cluster_status()
        facts = await asyncio.gather(*(self._facts(request, node) for node in seen.nodes))
        nodes = tuple(replace(node, facts=known) for node, known in zip(seen.nodes, facts, strict=True))
        workers = sum(1 for _ in backend.stale_state()[0].workers())
        last = backend.last_backup()
        status = replace(
            seen,
            nodes=nodes,
            workers=workers,
            answered_by=backend.node_id,
            last_backup=None if last is None else backup_status(last),
        )
        problems = since_of(seen.problems, find(status, were_asked=True))
        return replace(status, problems=problems, health=health_of(problems))

    async def _facts(self, request: web.Request, node: NodeStatus) -> NodeFacts | None:
        if node.id == self._backend.node_id:
            return self._backend.facts()
        if node.state == "down":
            return None
        body = await self._forwarder.ask(request, node.api, BASE_PATH + _FACTS_PATH, seconds=self._facts_seconds())
        try:
            return None if body is None else _decode_facts(body)
        except msgspec.DecodeError:
            return None

    def _facts_seconds(self) -> float:
        """Return how long to wait for a node's facts; a leader that must be asked first waits for them as well."""
        return _FACTS_SECONDS + _ROUND_TRIPS * self._backend.round_trip_ms() / 1000

    async def add_member(self, request: web.Request) -> web.Response:
        """Add a node to the cluster; it becomes a voter by itself once it has caught up."""
        wanted, _ = self._member.read(await self._bodies.read_json(request))
        for name in ("raft", "api"):
            Address.parse(getattr(wanted, name), field=name)
        return json_response(
            MembersReply(nodes=await self._backend.add_member(wanted.id, raft=wanted.raft, api=wanted.api))
        )

    async def remove_member(self, request: web.Request) -> web.Response:
        """Remove a node from the cluster permanently; a leader transfers leadership first."""
        return json_response(MembersReply(nodes=await self._backend.remove_member(request.match_info["id"])))

    async def get_encryption(self, request: web.Request) -> web.Response:
        """Read how the asked node encrypts its files: its keys, and the rows of each."""
        del request
        return json_response(self._backend.encryption())

    async def rotate_key(self, request: web.Request) -> web.Response:
        """Move the data of the asked node to the first key of its keys file; ask each node."""
        del request
        return json_response(self._backend.reencrypt())

    async def transfer_leadership(self, request: web.Request) -> web.Response:
        """Transfer leadership to the follower with the most complete log, or to a named voter."""
        to = self._transfer.read_optional(await self._bodies.read_optional_json(request)).to or ""
        backend = self._backend
        if not backend.is_leading:
            backend.fresh_state()
        if to == backend.node_id:
            return json_response(TransferReply(transferred=True))
        nodes = backend.cluster_status().nodes
        if to:
            _require_candidate(to, nodes)
        if sum(node.voter for node in nodes) < 2:
            raise Rejected("no_other_node", "no other node of the cluster has a vote, so none can become leader")
        if not await backend.transfer_leadership(to):
            raise Unavailable(
                f"{to or 'no other node'} {'did not become' if to else 'became'} leader; this one still leads"
            )
        return json_response(TransferReply(transferred=True))


def _require_candidate(node_id: str, nodes: Sequence[NodeStatus]) -> None:
    """Raise `NotFound`, or `Rejected` with the reason, if a node can't take over."""
    node = next((node for node in nodes if node.id == node_id), None)
    if node is None:
        raise NotFound(
            f"{node_id!a:.80} is not a member of the cluster; members are {', '.join(each.id for each in nodes)}"
        )
    if not node.voter:
        raise Rejected("node_joining", f"{node_id} is still joining, and has no vote")
    if node.state in ("down", "differs"):
        raise Rejected("node_unfit", f"{node_id} can't lead: it is {'down' if node.state == 'down' else 'not in step'}")
    if node.disk_low:
        raise Rejected("node_unfit", f"{node_id} can't lead: its disk is nearly full")
