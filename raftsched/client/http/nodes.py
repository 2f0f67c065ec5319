"""Choose the node to ask: follow a reachable leader, and avoid nodes that fail.

Any node answers (followers forward), so this concerns speed and availability, not correctness. Configured addresses are
always kept; learned addresses are replaced as the cluster changes. A client that uses https ignores learned addresses
with plain http, so that its token cannot be read.

A node that failed or did not answer is suspected: it gets no work while another one is left. A learned address gets no
work before it has answered as a node. It may be unreachable from here, or belong to another service (NAT, published
ports, a load balancer). Both are probed in the background, at growing intervals; an answer clears them.

A node that answers but can't serve has refused. It is asked again once a node has served, or all have refused; until then
nobody follows it, whoever names it as the leader: nodes that are cut off together with their leader do so for as long as
that lasts.

This module is pure: time is a parameter, and it sends nothing.
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
"""Longest interval between probes of a node that was configured or has answered before."""
UNREACHED_SECONDS_MAX: Final = 300.0
"""Longest interval between probes of a learned address that never answered; maybe only the cluster can reach it."""


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


class _NodeState:
    """The state of one address."""

    __slots__ = ("failure_count", "has_answered", "is_configured", "probe_at")

    def __init__(self, *, is_configured: bool) -> None:
        self.is_configured = is_configured
        self.has_answered = False
        self.failure_count = 0
        """Failures since its last answer; above 0 the node is suspected."""
        self.probe_at = inf if is_configured else -inf

    @property
    def takes_work(self) -> bool:
        return self.is_configured or self.has_answered


class Nodes:
    """The known nodes, and the one to ask next, `current`.

    A failed node is first probed after `avoid_seconds`. Without `follow_leader` only `urls` are asked.
    """

    def __init__(self, urls: Sequence[str], *, avoid_seconds: float, follow_leader: bool = True) -> None:
        if not urls:
            raise Invalid("url: at least one node's address is needed", field="url")
        self._configured: Final = tuple(dict.fromkeys(normal_url(url) for url in urls))
        self._known = {url: _NodeState(is_configured=True) for url in self._configured}
        self._avoid_seconds: Final = avoid_seconds
        self._follows: Final = follow_leader
        self._leader = ""
        """Named by the latest reply, until it fails."""
        self._refused: set[str] = set()
        """Those that refused since a node served."""
        self.current = self._configured[0]
        self.probe_at = inf
        """Time of the next probe; `due` returns its nodes."""

    def __len__(self) -> int:
        """Count the addresses that get work."""
        return sum(state.takes_work for state in self._known.values())

    @property
    def known(self) -> tuple[str, ...]:
        """Return all addresses, the configured ones first."""
        return tuple(self._known)

    # -- news from the cluster ----------------------------------------------------------------------------------------

    def learn(self, urls: Iterable[str]) -> None:
        """Replace the learned addresses by the cluster's list; unusable addresses are left out."""
        if not self._follows:
            return
        learned = [url for url in map(self._usable, urls) if url is not None]
        kept = list(dict.fromkeys((*self._configured, *learned)))[:NODES_MAX]
        self._known = {url: self._known.get(url) or _NodeState(is_configured=False) for url in kept}
        self._find_probe()
        if self.current not in self._known:
            self.current = self._configured[0]

    def follow(self, leader: str) -> None:
        """Note the `leader` that a reply named: ask it next, once it has answered, unless it is suspected."""
        if leader == self.current or not self._follows:
            return
        url = self._usable(leader)
        if url is None:
            return
        if url not in self._known:
            if len(self._known) >= NODES_MAX:
                return
            self._known[url] = _NodeState(is_configured=False)
            self._find_probe()
        self._leader = url
        if self._is_fine(url) and url not in self._refused:
            self.current = url

    # -- results of requests ------------------------------------------------------------------------------------------

    def answered(self, url: str) -> None:
        """Note that `url` is reachable: it gets work, at once if it leads and has not refused."""
        state = self._known.get(url)
        if state is None:
            return
        if state.failure_count or not state.has_answered:
            state.has_answered = True
            state.failure_count = 0
            state.probe_at = inf
            self._find_probe()
        if url == self._leader and url not in self._refused:
            self.current = url

    def served(self, url: str) -> None:
        """Note that `url` did what it was asked for, so that others may be able to as well."""
        self._refused.clear()
        self.answered(url)

    def failed(self, url: str, now: float) -> None:
        """Suspect `url`, which could not be reached or did not answer, and choose another one."""
        state = self._known.get(url)
        if state is None:
            return
        pause = self._avoid_seconds * 2.0 ** min(state.failure_count, 30)
        most = PROBE_SECONDS_MAX if state.takes_work else UNREACHED_SECONDS_MAX
        state.failure_count += 1
        state.probe_at = now + min(pause, max(most, self._avoid_seconds))
        self._find_probe()
        if url == self._leader:
            self._leader = ""
        self.pass_over(url)

    def refused(self, url: str) -> None:
        """Choose another node, if there is any, since `url` answers but can't serve now."""
        self._refused.add(url)
        if all(other in self._refused for other in self._known if self._is_fine(other)):
            self._refused = {url}
        self.pass_over(url)

    def pass_over(self, url: str) -> None:
        """Choose another node, if there is any: one that neither failed nor refused, if there is one."""
        if url == self.current:
            others = self._after(url)
            fine = [other for other in others if self._is_fine(other)]
            willing = [other for other in fine if other not in self._refused]
            self.current = (willing or fine or others or [url])[0]

    def another(self, asked: Collection[str]) -> str | None:
        """Return a node that is not suspected and not in `asked`; None if there is none."""
        order = (self.current, *self._after(self.current))
        return next((url for url in order if url not in asked and self._is_fine(url)), None)

    def last_resort(self, asked: Collection[str]) -> str | None:
        """Return a suspected node that is not in `asked`, for a request that no other node answers; None if there is none.

        After an outage of all nodes each of them is suspected until its next probe.
        """
        order = (self.current, *self._after(self.current))
        return next((url for url in order if url not in asked and self._known[url].takes_work), None)

    # -- probes -------------------------------------------------------------------------------------------------------

    def due(self, now: float) -> Sequence[str]:
        """Return the addresses to probe now; the caller reports each result by `answered` or `failed`."""
        return [url for url, state in self._known.items() if state.probe_at <= now]

    def is_configured(self, url: str) -> bool:
        """Return whether `url` was configured, not learned."""
        return url in self._configured

    def _find_probe(self) -> None:
        self.probe_at = min(state.probe_at for state in self._known.values())

    def _after(self, url: str) -> list[str]:
        """Return the other addresses that get work, in order after `url`."""
        known = list(self._known)
        position = known.index(url)
        return [other for other in known[position + 1 :] + known[:position] if self._known[other].takes_work]

    def _is_fine(self, url: str) -> bool:
        state = self._known[url]
        return state.takes_work and not state.failure_count

    def _usable(self, url: str) -> str | None:
        try:
            url = normal_url(url)
        except Invalid:
            return None
        downgrade = self._configured[0].startswith("https:") and not url.startswith("https:")
        return None if downgrade else url
