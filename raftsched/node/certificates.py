"""The certificates of a node: the contexts that its settings name, kept up to date with their files.

Files are looked at every few seconds, and at once when asked.
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from pathlib import Path
from typing import Final

from raftsched.config import NodeConfig
from raftsched.consensus.net.address import Address
from raftsched.node.facts import Expiry
from raftsched.tls.contexts import ApiTlsFiles, TlsContexts, TlsFiles, api_contexts, node_contexts
from raftsched.tls.renewal import RenewedContexts

LOOK_SECONDS: Final = 2.0


def peer_contexts(config: NodeConfig) -> TlsContexts | None:
    """Return both sides of TLS between nodes, None if it is not used; raises `Invalid` naming setting and file."""
    return node_contexts(_peer_files(config), config.node_id) if config.peer_tls else None


def own_api_contexts(config: NodeConfig) -> TlsContexts | None:
    """Return both sides of TLS of the API, None if it is not used; raises `Invalid` naming setting and file."""
    return api_contexts(_api_files(config), Address.parse(config.member.api).host) if config.api_tls else None


def _peer_files(config: NodeConfig) -> TlsFiles:
    assert config.peer_tls is not None
    return TlsFiles(Path(config.peer_tls.certificate), Path(config.peer_tls.key), Path(config.peer_tls.ca))


def _api_files(config: NodeConfig) -> ApiTlsFiles:
    given = config.api_tls
    assert given is not None
    authority, client_authority = (Path(path) if path else None for path in (given.ca, given.client_ca))
    return ApiTlsFiles(Path(given.certificate), Path(given.key), authority, client_authority)


class Certificates:
    """The contexts of a node; each is None if the settings have no TLS there."""

    def __init__(self, config: NodeConfig) -> None:
        """Read all files; raises `Invalid` naming setting and file."""
        self.peers: RenewedContexts | None = None
        self.api: RenewedContexts | None = None
        if config.peer_tls:
            files = _peer_files(config)
            paths = (files.certificate, files.key, files.authority)
            self.peers = RenewedContexts("peer_tls", paths, lambda: node_contexts(files, config.node_id))
        if config.api_tls:
            api = _api_files(config)
            host = Address.parse(config.member.api).host
            paths_of_api = (api.certificate, api.key, api.authority, api.client_authority)
            self.api = RenewedContexts("api_tls", paths_of_api, lambda: api_contexts(api, host))
        self._asked = asyncio.Event()

    @property
    def api_server(self) -> ssl.SSLContext | None:
        return self.api.server if self.api else None

    @property
    def api_client(self) -> ssl.SSLContext | None:
        """Return the context for requests to other nodes."""
        return self.api.client if self.api else None

    def expiries(self) -> list[Expiry]:
        """Return when the certificates that this node shows expire, by their settings."""
        used = {"api_tls": self.api, "peer_tls": self.peers}
        return [Expiry(setting, contexts.expires_at) for setting, contexts in used.items() if contexts is not None]

    def ask(self) -> None:
        """Look at the files soon."""
        self._asked.set()

    async def keep(self) -> None:
        """Look at the files until cancelled; returns at once if there are none."""
        used = [contexts for contexts in (self.peers, self.api) if contexts is not None]
        if not used:
            return
        while True:
            for contexts in used:
                contexts.look()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._asked.wait(), LOOK_SECONDS)
            self._asked.clear()
