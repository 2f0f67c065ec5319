"""The cluster: who leads, how far each node is, who belongs to it, and handing the lead over.

The leader knows the most, so other nodes ask it; but this is what people look at when things go wrong, so a node that
can't reach the leader within `_ASK_SECONDS` answers with what it knows itself.
"""

from __future__ import annotations

from typing import Final

import structlog
from aiohttp import web

from raftsched.api.backend import Backend
from raftsched.api.forwarder import Forwarder
from raftsched.api.http.bodies import Bodies
from raftsched.api.http.json_reply import json_response
from raftsched.api.http.routes import Answered, Route, route
from raftsched.api.json.decode import Fitter
from raftsched.consensus.net.address import Address
from raftsched.errors import Rejected, Unavailable
from raftsched.wire.cluster import ClusterStatus, MemberRequest, MembersReply, TransferReply

_ASK_SECONDS: Final = 0.5
_log = structlog.get_logger()


class Cluster:
    """The routes of the cluster."""

    def __init__(self, backend: Backend, bodies: Bodies, forwarder: Forwarder) -> None:
        self._backend = backend
        self._bodies = bodies
        self._forwarder = forwarder
        self._member = Fitter(MemberRequest)

    def routes(self) -> tuple[Route, ...]:
        return (
            route("GET", "/cluster", self.get_cluster, ClusterStatus, answered=Answered.HERE),
            route("POST", "/cluster/transfer", self.transfer_leadership, TransferReply),
            route("POST", "/cluster/members", self.add_member, MembersReply, body=MemberRequest),
            route("DELETE", "/cluster/members/{id}", self.remove_member, MembersReply),
        )

    async def get_cluster(self, request: web.Request) -> web.Response:
        """Read who leads and how far each node is, as the leader sees it where it can be asked."""
        try:
            leader_url = self._forwarder.leader_elsewhere(request)
            if leader_url is not None:
                return await self._forwarder.forward(request, leader_url, wait_seconds=_ASK_SECONDS)
        except Unavailable as error:
            _log.debug("leader_not_asked", error=str(error))
        return json_response(self._backend.cluster_status())

    async def add_member(self, request: web.Request) -> web.Response:
        """Let a node join the cluster; it becomes a voter by itself once it has caught up."""
        asked, _ = self._member.read(await self._bodies.read_json(request))
        for name in ("raft", "api"):
            Address.parse(getattr(asked, name), field=name)
        return json_response(
            MembersReply(nodes=await self._backend.add_member(asked.id, raft=asked.raft, api=asked.api))
        )

    async def remove_member(self, request: web.Request) -> web.Response:
        """Remove a node from the cluster for good; a leader hands over first."""
        return json_response(MembersReply(nodes=await self._backend.remove_member(request.match_info["id"])))

    async def transfer_leadership(self, request: web.Request) -> web.Response:
        """Hand the lead to the follower that is furthest."""
        del request
        if not self._backend.is_leading:
            self._backend.fresh_state()
        nodes = self._backend.cluster_status().nodes
        if sum(node.voter for node in nodes) < 2:
            raise Rejected("no_other_node", "no other node of the cluster has a vote, so none can take the lead over")
        if not await self._backend.hand_over():
            raise Unavailable("no other node took the lead over; this one still leads")
        return json_response(TransferReply(transferred=True))
