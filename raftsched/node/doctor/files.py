"""Check the files that the settings name: certificates, keys and secrets."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from raftsched.api.access.admin_file import AdminFile
from raftsched.api.cluster.problems import CERTIFICATE_DAYS
from raftsched.config import NodeConfig, Places
from raftsched.errors import RaftschedError
from raftsched.node.certificates import own_api_contexts, peer_contexts
from raftsched.node.doctor.finding import Finding, fail, ok, warn
from raftsched.node.preflight import cluster_secrets, directory_faults, keys_of, require_protected_peers
from raftsched.tls.contexts import TlsContexts

_DAY_SECONDS = 86_400


def file_findings(config: NodeConfig, places: Places) -> Iterator[Finding]:
    """Check each file, and what a start of the node would refuse."""
    yield _tried("TLS between nodes", places, lambda: _certificate("peer_tls", peer_contexts(config)))
    yield _tried("TLS of the API", places, lambda: _certificate("api_tls", own_api_contexts(config)))
    yield _tried("peer protection", places, lambda: _protection(config))
    yield _tried("admin token file", places, lambda: _admin_token(config))
    yield _tried("keys file", places, lambda: _keys(config))
    for fault in directory_faults(config):
        yield fail("data directory", places.of(fault), "Repair the directory, or name another one in data_dir.")


def _tried(check: str, places: Places, examine: Callable[[], str | tuple[str, str]]) -> Finding:
    """Return what `examine` finds: a text, a text with a cure, or the error that a start would end with."""
    try:
        found = examine()
    except RaftschedError as error:
        return fail(check, places.of(str(error)), "A node does not start with it.")
    return ok(check, found) if isinstance(found, str) else warn(check, *found)


def _certificate(setting: str, contexts: TlsContexts | None) -> str | tuple[str, str]:
    if contexts is None:
        return f"[{setting}] is not set"
    days = int((contexts.expires_at - time.time()) // _DAY_SECONDS)
    found = f"name, key and authority of [{setting}] fit, {days} days left"
    return found if days >= CERTIFICATE_DAYS else (found, "Write new files; nodes use them without a restart.")


def _protection(config: NodeConfig) -> str | tuple[str, str]:
    require_protected_peers(config)
    secrets = cluster_secrets(config)
    if config.peer_tls is not None:
        return "[peer_tls]: nodes know each other by certificates"
    if len(secrets) == 1:
        return "cluster_secret_file: nodes know each other by a secret; traffic is not encrypted"
    if secrets:
        return "cluster_secret_file: nodes know each other by one of two secrets; traffic is not encrypted"
    if config.insecure_peers:
        return "insecure_peers: nothing tells nodes from others", "Set [peer_tls] or cluster_secret_file."
    return "only this machine reaches the Raft port"


def _admin_token(config: NodeConfig) -> str:
    if not config.admin_token_file:
        return "not set"
    AdminFile(Path(config.admin_token_file)).load()
    return f"{config.admin_token_file} can be read"


def _keys(config: NodeConfig) -> str:
    keys = keys_of(config)
    return f"{len(keys)} keys; {keys[0].id} encrypts" if keys else "not set: files are not encrypted"
