"""Which node to ask: follow the leader where it can be reached, move on from what fails.

Any node answers (followers forward), so this is about speed and survival, not correctness. Configured addresses are
never forgotten; those learned from the cluster are replaced as the cluster changes. An address learned over https is
never followed to plain http, where a token could be read. Pure: time is handed in, nothing is sent from here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from urllib.parse import urlsplit

from raftsched.errors import Invalid

NODES_MAX = 32
"""Addresses kept; a cluster has 3 to 5 nodes, so more means a broken answer."""


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


class Nodes:
    """The known nodes and the one to ask next, `current`."""

    def __init__(self, urls: Sequence[str], *, avoid_seconds: float) -> None:
        if not urls:
            raise Invalid("url: at least one node's address is needed", field="url")
        self._configured = tuple(dict.fromkeys(normal_url(url) for url in urls))
        self._known = list(self._configured)
        self._avoid_seconds = avoid_seconds
        self._avoid_until: dict[str, float] = {}
        self.current = self._known[0]

    def __len__(self) -> int:
        return len(self._known)

    @property
    def known(self) -> tuple[str, ...]:
        """All addresses, the configured ones first."""
        return tuple(self._known)

    def learn(self, urls: Iterable[str]) -> None:
        """Take the cluster's own list in place of what was learned before; unusable addresses are left out."""
        learned = [url for url in map(self._usable, urls) if url is not None]
        self._known = list(dict.fromkeys((*self._configured, *learned)))[:NODES_MAX]
        if self.current not in self._known:
            self.current = self._known[0]

    def follow(self, leader: str, now: float) -> None:
        """A reply named `leader`: ask it next, unless it could not be reached lately."""
        if leader == self.current:
            return
        url = self._usable(leader)
        if url is None or self._avoid_until.get(url, 0.0) > now:
            return
        if url not in self._known:
            if len(self._known) >= NODES_MAX:
                return
            self._known.append(url)
        self.current = url

    def answered(self, url: str) -> None:
        """`url` is reachable again."""
        if self._avoid_until:
            self._avoid_until.pop(url, None)

    def failed(self, url: str, now: float) -> None:
        """`url` could not be reached: avoid it for a while and move on."""
        self._avoid_until[url] = now + self._avoid_seconds
        self.pass_over(url, now)

    def pass_over(self, url: str, now: float) -> None:
        """`url` can't serve just now: ask another one next, if there is any."""
        if url != self.current:
            return
        position = self._known.index(url)
        others = self._known[position + 1 :] + self._known[:position]
        fine = [other for other in others if self._avoid_until.get(other, 0.0) <= now]
        self.current = (fine or others or [url])[0]

    def _usable(self, url: str) -> str | None:
        try:
            url = normal_url(url)
        except Invalid:
            return None
        downgrade = self._configured[0].startswith("https:") and not url.startswith("https:")
        return None if downgrade else url
