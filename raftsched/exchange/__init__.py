"""One HTTP request, sent at most once: the port that client, worker and forwarder use, and its pool of real sockets."""

from raftsched.exchange.pool import HttpPool
from raftsched.exchange.port import Broken, Exchange, Http, Reply, StreamedReply, TimedOut, Timeouts

__all__ = ["Broken", "Exchange", "Http", "HttpPool", "Reply", "StreamedReply", "TimedOut", "Timeouts"]
