"""A node whose Raft port others can reach tells nodes from others, or is started so by its operator's own word."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from raftsched.config import Encryption, Member, NodeConfig, PeerTls
from raftsched.encryption.keys import Key, KeyCheck
from raftsched.errors import Invalid
from raftsched.node.identity import DirectoryClaim
from raftsched.node.preflight import cluster_secrets, faults, require_protected_peers

OPEN = NodeConfig(
    node_id="n1",
    data_dir="/nowhere",
    nodes=(Member("n1", "host1:8401", "host1:8400"),),
    auth="none",
    raft_listen="0.0.0.0:8401",
)


@pytest.mark.parametrize("listen", ["0.0.0.0:8401", "[::]:8401", "10.0.0.1:8401", "host1:8401", ""])
def test_a_raft_port_that_others_can_reach_must_be_protected(listen: str) -> None:
    with pytest.raises(Invalid, match=r"\[peer_tls\].*cluster_secret_file.*insecure_peers = true") as refused:
        require_protected_peers(replace(OPEN, raft_listen=listen))
    assert refused.value.field == ("raft_listen" if listen else "nodes.n1.raft")


def test_tls_a_secret_loopback_or_the_operators_word_are_enough(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("s" * 32)
    for allowed in (
        replace(OPEN, peer_tls=PeerTls("c", "k", "a")),
        replace(OPEN, cluster_secret_file=str(path)),
        replace(OPEN, insecure_peers=True),
        replace(OPEN, raft_listen="127.0.0.1:8401"),
        replace(OPEN, raft_listen="[::1]:8401"),
        replace(OPEN, raft_listen="localhost:8401"),
    ):
        require_protected_peers(allowed)
    assert cluster_secrets(replace(OPEN, cluster_secret_file=str(path))) == (b"s" * 32,)
    assert cluster_secrets(OPEN) == ()


async def test_keys_that_the_data_directory_needs_are_checked_before_a_start(tmp_path: Path) -> None:
    keys, directory = tmp_path / "keys", tmp_path / "data"
    keys.touch(mode=0o600)
    keys.write_text(f"k1 {'MTEx' * 10}MTE=\n")
    claim = DirectoryClaim(directory, node_id="n1", cluster="raftsched", keys=[Key("k1", b"1" * 32)])
    claim.need_key(KeyCheck("k1", Key("k1", b"1" * 32).check))
    claim.release()
    member = Member("n1", "127.0.0.1:8401", "127.0.0.1:8400")
    config = replace(OPEN, data_dir=str(directory), nodes=(member,), raft_listen="")
    with_keys = replace(config, encryption=Encryption(str(keys)))
    assert await faults(with_keys) == []
    (missing,) = await faults(config)
    assert "the key k1, and encryption.keys_file is not set" in missing
    keys.write_text("k1 short\n")
    (malformed,) = await faults(with_keys)
    assert "line 1" in malformed
