"""One HTTP request, sent at most once: the port that client, worker and forwarder use, and its pool of real sockets."""

from raftsched.exchange.pool import HttpPool
from raftsched.exchange.port import Broken, Exchange, Http, Patience, Reply, StreamedReply, TimedOut

__all__ = ["Broken", "Exchange", "Http", "HttpPool", "Patience", "Reply", "StreamedReply", "TimedOut"]
