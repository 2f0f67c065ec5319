"""Check a node's settings before it runs: `raftsched node --check-config`, and the first steps of a start.

Nothing is written here, and nothing stays bound. A port that is in use is no fault: the node that is to be restarted
with these settings may have it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from raftsched.config import NodeConfig
from raftsched.consensus.net.address import Address, Resolve, resolve
from raftsched.consensus.net.link_secret import read_secrets
from raftsched.encryption.keys import Key, read_keys, require_keys
from raftsched.errors import Invalid, RaftschedError
from raftsched.node.bound_ports import PortRefused, bind_socket
from raftsched.node.certificates import own_api_contexts, peer_contexts
from raftsched.node.identity import NODE_FILE, require_owner


def cluster_secrets(config: NodeConfig) -> tuple[bytes, ...]:
    """Return the secrets that nodes share, () without any; raises `Invalid` naming setting, file and line."""
    return read_secrets(Path(config.cluster_secret_file)) if config.cluster_secret_file else ()


def keys_of(config: NodeConfig) -> tuple[Key, ...]:
    """Return the keys of encryption at rest, () without a keys file; raises `Invalid` naming setting and line."""
    return read_keys(Path(config.encryption.keys_file)) if config.encryption.keys_file else ()


def require_protected_peers(config: NodeConfig) -> None:
    """Raise `Invalid` if other machines can reach the Raft port, and nothing tells nodes from others."""
    setting, address = config.raft_address
    if config.peer_tls or config.cluster_secret_file or config.insecure_peers or address.is_loopback:
        return
    raise Invalid(
        f"{setting}: other machines can reach {address}, and whoever does could speak as a node: set [peer_tls] (make its "
        "files with raftsched tls new-ca and raftsched tls issue) or cluster_secret_file; or insecure_peers = true if "
        "everybody who can reach it is trusted",
        field=setting,
    )


async def faults(config: NodeConfig, *, resolve: Resolve = resolve) -> list[str]:
    """Return every fault that would keep the node from starting, each with its setting."""
    found = []
    for check in (require_protected_peers, peer_contexts, own_api_contexts, cluster_secrets, keys_of):
        try:
            check(config)
        except RaftschedError as error:
            found.append(str(error))
    for setting, address in (config.api_address, config.raft_address):
        try:
            await _require_here(setting, address, resolve)
        except RaftschedError as error:
            found.append(str(error))
    return [*found, *directory_faults(config)]


async def _require_here(setting: str, address: Address, resolve: Resolve) -> None:
    """Check that this machine has the address, at a port of the system's choice; raises `PortRefused`."""
    try:
        numeric = await resolve(address)
    except OSError as error:
        raise PortRefused(f"{setting}: {address}: {error.strerror or error}") from error
    for each in numeric:
        try:
            bind_socket(Address(each.host, 0)).close()
        except OSError:
            continue
        return
    raise PortRefused(f"{setting}: this machine has no address {address.host}")


def directory_faults(config: NodeConfig) -> Iterator[str]:
    """Return the faults of the data directory, as far as they can be seen without making or locking it."""
    directory = config.directory
    existing = next((each for each in (directory, *directory.absolute().parents) if each.exists()), Path("/"))
    if not existing.is_dir():
        yield f"data_dir: {existing} is not a directory"
    elif not _is_writable(existing):
        yield f"data_dir: {existing} can't be written by this user"
    elif existing == directory:
        try:
            owner = require_owner(directory, node_id=config.node_id, cluster=config.cluster)
            if owner is not None:
                require_keys(owner.keys, keys_of(config), whose=f"the data in {directory}")
        except Invalid:
            return  # the keys file is at fault, which is reported already
        except RaftschedError as error:
            yield f"data_dir: {error}"


def _is_writable(directory: Path) -> bool:
    return os.access(directory, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids)


def summary(config: NodeConfig) -> Iterator[str]:
    """Describe what would run, one fact a line."""
    directory = config.directory
    state = "in use by this node before" if (directory / NODE_FILE).exists() else "new: it will be made"
    yield f"node {config.node_id} of cluster {config.cluster}, {len(config.nodes)} nodes:"
    for member in config.nodes:
        yield f"  {member.id}: raft {member.raft}, api {member.api}" + (" (this one)" * (member.id == config.node_id))
    yield f"listens on {config.api_address[1]} (API) and {config.raft_address[1]} (nodes)"
    yield f"data in {directory} ({state})"
    yield "TLS between nodes: " + (f"certificate {config.peer_tls.certificate}" if config.peer_tls else "none")
    yield "TLS of the API: " + (f"certificate {config.api_tls.certificate}" if config.api_tls else "none")
    keys_file = config.encryption.keys_file
    yield "encryption at rest: " + (f"keys in {keys_file}" if keys_file else "none")
    yield "secret between nodes: " + (config.cluster_secret_file or "none")
