"""A node as pysyncobj and the transports know it."""

from __future__ import annotations

from operator import attrgetter

from pysyncobj.node import Node

from raftsched.consensus.ports import NodeId


class PeerNode(str, Node):  # type: ignore[misc]  # noqa: SLOT000  # pysyncobj carries no types, and keeps `_id`
    """A node that is its id: hashed once and compared by the interpreter, as sets and maps of nodes do all the time.

    It equals any other `Node` of the same id.
    """

    id = property(attrgetter("_id"))

    def __init__(self, node_id: NodeId) -> None:
        Node.__init__(self, str(node_id))
