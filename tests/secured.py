"""A cluster of real processes with TLS on both ports, whose certificates and authorities a test can replace."""

from __future__ import annotations

import signal
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from raftsched.cli.local.cluster import HOST, LocalCluster, LocalNode
from raftsched.tls.authority import issue, new_authority


class SecuredCluster(LocalCluster):
    """Each node has its own certificate; all files are under `directory`/tls. `trusted` is what clients trust."""

    def __init__(self, directory: Path, *, node_count: int = 3, settings: Mapping[str, Any] | None = None) -> None:
        super().__init__(directory, node_count=node_count, settings=settings)
        self.files = directory / "tls"
        self.trusted = self.files / "clients" / "trusted.pem"
        self.trusted.parent.mkdir(parents=True)
        for name in ("ca1", "ca2"):
            new_authority(self.files / name, days=30)
        for node in self.nodes:
            self._files_of(node).mkdir()
            self._configure(node)
        self.trust("ca1")
        self.issue("ca1")

    def _files_of(self, node: LocalNode) -> Path:
        return self.files / node.id

    def _configure(self, node: LocalNode) -> None:
        files = self._files_of(node)
        paths = (
            f'certificate = "{files / node.id}.crt"\nkey = "{files / node.id}.key"\nca = "{files / "trusted.pem"}"\n'
        )
        node.own_config = node.directory / "own.toml"
        tables = f"\n[peer_tls]\n{paths}\n[api_tls]\n{paths}"
        node.own_config.write_text(self.config.read_text() + tables)
        node.api = node.api.replace("http://", "https://")
        node.ca_file = self.trusted

    def trust(self, *authorities: str) -> None:
        """Let all nodes and clients trust these, and no others."""
        text = "".join((self.files / name / "ca.crt").read_text() for name in authorities)
        for path in (self.trusted, *(self._files_of(node) / "trusted.pem" for node in self.nodes)):
            whole = path.with_suffix(".new")
            whole.write_text(text)
            whole.replace(path)

    def issue(self, authority: str) -> None:
        """Replace the certificate and the key of every node."""
        for node in self.nodes:
            issue(
                self.files / authority,
                self._files_of(node),
                name=node.id,
                hosts=[HOST],
                days=20,
                is_client=False,
                replace=True,
            )

    def hang_up(self) -> None:
        """Ask all nodes to read their certificates now."""
        for node in self.nodes:
            node.signal(signal.SIGHUP)

    def wait_for_renewals(self, count: int) -> None:
        """Wait until every node has used new files `count` times since its start, on each of its ports."""
        for node in self.nodes:
            self.wait_until(
                lambda node=node: self._renewals(node) >= 2 * count,  # type: ignore[misc]
                what=f"{node.id} to use its new certificates",
            )

    def _renewals(self, node: LocalNode) -> int:
        return node.log_file.read_text().count('"certificates_renewed"')

    def client_context(self) -> ssl.SSLContext:
        """Return a context that trusts what clients trust now."""
        return ssl.create_default_context(cafile=self.trusted)
