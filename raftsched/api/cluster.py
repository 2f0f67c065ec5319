"""The cluster: who leads, how far each node is, and handing the lead over.

The leader knows the most, so other nodes ask it; but this is what people look at when things go wrong, so a node that
can't reach the leader within `_ASK_SECONDS` answers with what it knows itself.
"""

from __future__ import annotations

from typing import Final

import structlog
from aiohttp import web

from raftsched.api.backend import Backend, ClusterStatus
from raftsched.api.forwarding import Forwarder
from raftsched.api.rendering import json_response
from raftsched.api.replies import TransferReply
from raftsched.api.routes import BASE_PATH, Answered, Route
from raftsched.errors import Unavailable

_ASK_SECONDS: Final = 0.5
_log = structlog.get_logger()


class Cluster:
    """The routes of the cluster."""

    def __init__(self, backend: Backend, forwarder: Forwarder) -> None:
        self._backend = backend
        self._forwarder = forwarder

    def routes(self) -> tuple[Route, ...]:
        return (
            Route(
                method="GET",
                path=f"{BASE_PATH}/cluster",
                handler=self.get_cluster,
                answered=Answered.HERE,
                reply=ClusterStatus,
            ),
            Route(
                method="POST",
                path=f"{BASE_PATH}/cluster/transfer",
                handler=self.transfer_leadership,
                answered=Answered.BY_LEADER,
                reply=TransferReply,
            ),
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

    async def transfer_leadership(self, request: web.Request) -> web.Response:
        """Hand the lead to the follower that is furthest."""
        del request
        if not self._backend.is_leading:
            self._backend.fresh_state()
        if not await self._backend.hand_over():
            raise Unavailable("no other node took the lead over; this one still leads")
        return json_response(TransferReply(transferred=True))
