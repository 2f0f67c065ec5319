"""Which node to ask: follow the leader where it can be reached, move on from what fails.

Any node answers (followers forward), so this is about speed and survival, not correctness. Configured addresses are
never forgotten; those learned from the cluster are replaced as the cluster changes. An address learned over https is
never followed to plain http, where a token could be read.

A node that failed or was silent is suspected: no work goes to it while another one is left. An address that was learned
gets no work at all before it has answered as a node of ours, for it may lead nowhere from here, or to somebody else
(NAT, published ports, a load balancer). Both are probed beside the work, ever less often; an answer clears them.

Pure: time is handed in, nothing is sent from here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from math import inf
from typing import Final
from urllib.parse import urlsplit

from raftsched.errors import Invalid

NODES_MAX: Final = 32
"""Addresses kept; a cluster has 3 to 5 nodes, so more means a broken answer."""
PROBE_SECONDS_MAX: Final = 10.0
"""A node that was given, or has answered before, is probed at least so often: it may be back."""
UNREACHED_SECONDS_MAX: Final = 300.0
"""The same for a learned address that never answered: it may be one that only the cluster can reach."""


def normal_url(url: str) -> str:
    """Return the base URL without a trailing slash; raises `Invalid` for anything but http(s)://host[:port][/path]."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise Invalid(f"url: {url!r}: {error}", field="url") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise Invalid(f"url: {url!r} is not the http:// or https:// address of a node", field="url")
    return url.rstrip("/")


class _Standing:
    """What is known of one address."""

    __slots__ = ("failure_count", "has_answered", "is_configured", "probe_at")

    def __init__(self, *, is_configured: bool) -> None:
        self.is_configured = is_configured
        self.has_answered = False
        self.failure_count = 0
        """Since it last answered; above 0 it is suspected."""
        self.probe_at = inf if is_configured else -inf

    @property
    def takes_work(self) -> bool:
        return self.is_configured or self.has_answered


class Nodes:
    """The known nodes and the one to ask next, `current`.

    A node that failed is probed first after `avoid_seconds`. Unless `follow_leader`, only `urls` are ever asked.
    """

    def __init__(self, urls: Sequence[str], *, avoid_seconds: float, follow_leader: bool = True) -> None:
        if not urls:
            raise Invalid("url: at least one node's address is needed", field="url")
        self._configured: Final = tuple(dict.fromkeys(normal_url(url) for url in urls))
        self._known = {url: _Standing(is_configured=True) for url in self._configured}
        self._avoid_seconds: Final = avoid_seconds
        self._follows: Final = follow_leader
        self._leader = ""
        """Named by the latest reply, until it fails."""
        self.current = self._configured[0]
        self.probe_at = inf
        """When some node should be probed; `due` says which."""

    def __len__(self) -> int:
        """Count the addresses that get work."""
        return sum(standing.takes_work for standing in self._known.values())

    @property
    def known(self) -> tuple[str, ...]:
        """All addresses, the configured ones first."""
        return tuple(self._known)

    # -- what the cluster says ----------------------------------------------------------------------------------------

    def learn(self, urls: Iterable[str]) -> None:
        """Take the cluster's own list in place of what was learned before; unusable addresses are left out."""
        if not self._follows:
            return
        learned = [url for url in map(self._usable, urls) if url is not None]
        kept = list(dict.fromkeys((*self._configured, *learned)))[:NODES_MAX]
        self._known = {url: self._known.get(url) or _Standing(is_configured=False) for url in kept}
        self._find_probe()
        if self.current not in self._known:
            self.current = self._configured[0]

    def follow(self, leader: str) -> None:
        """A reply named `leader`: ask it next, once it has answered, unless it is suspected."""
        if leader == self.current or not self._follows:
            return
        url = self._usable(leader)
        if url is None:
            return
        if url not in self._known:
            if len(self._known) >= NODES_MAX:
                return
            self._known[url] = _Standing(is_configured=False)
            self._find_probe()
        self._leader = url
        if self._is_fine(url):
            self.current = url

    # -- what became of requests --------------------------------------------------------------------------------------

    def answered(self, url: str) -> None:
        """`url` is reachable: it gets work, at once where it leads."""
        standing = self._known.get(url)
        if standing is None:
            return
        if standing.failure_count or not standing.has_answered:
            standing.has_answered = True
            standing.failure_count = 0
            standing.probe_at = inf
            self._find_probe()
        if url == self._leader:
            self.current = url

    def failed(self, url: str, now: float) -> None:
        """`url` could not be reached, or said nothing: suspect it and move on."""
        standing = self._known.get(url)
        if standing is None:
            return
        pause = self._avoid_seconds * 2.0 ** min(standing.failure_count, 30)
        most = PROBE_SECONDS_MAX if standing.takes_work else UNREACHED_SECONDS_MAX
        standing.failure_count += 1
        standing.probe_at = now + min(pause, max(most, self._avoid_seconds))
        self._find_probe()
        if url == self._leader:
            self._leader = ""
        self.pass_over(url)

    def pass_over(self, url: str) -> None:
        """`url` can't serve just now: ask another one next, if there is any."""
        if url == self.current:
            others = self._after(url)
            fine = [other for other in others if self._is_fine(other)]
            self.current = (fine or others or [url])[0]

    def another(self, asked: Collection[str]) -> str | None:
        """Return a node that is not suspected and none of `asked`; None where there is none."""
        order = (self.current, *self._after(self.current))
        return next((url for url in order if url not in asked and self._is_fine(url)), None)

    # -- probes -------------------------------------------------------------------------------------------------------

    def due(self, now: float) -> Sequence[str]:
        """Return the addresses to probe now; tell of each what became of it."""
        return [url for url, standing in self._known.items() if standing.probe_at <= now]

    def is_configured(self, url: str) -> bool:
        """Whether `url` was given, and not learned."""
        return url in self._configured

    def _find_probe(self) -> None:
        self.probe_at = min(standing.probe_at for standing in self._known.values())

    def _after(self, url: str) -> list[str]:
        """Return the other addresses that get work, in turn behind `url`."""
        known = list(self._known)
        position = known.index(url)
        return [other for other in known[position + 1 :] + known[:position] if self._known[other].takes_work]

    def _is_fine(self, url: str) -> bool:
        standing = self._known[url]
        return standing.takes_work and not standing.failure_count

    def _usable(self, url: str) -> str | None:
        try:
            url = normal_url(url)
        except Invalid:
            return None
        downgrade = self._configured[0].startswith("https:") and not url.startswith("https:")
        return None if downgrade else url
