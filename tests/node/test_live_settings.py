"""After SIGHUP a node adopts what may change, all or nothing, and says what waits for a restart."""

from __future__ import annotations

import base64
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import structlog

from chaos.sim.machine.disk import SimulatedDisk
from raftsched import config
from raftsched.consensus.journal.journal import Journal
from raftsched.encryption.cipher import NO_KEYS, Cipher
from raftsched.encryption.keys import read_keys
from raftsched.node.identity import DirectoryClaim
from raftsched.node.key_ring import KeyRing
from raftsched.node.live_settings import LiveSettings
from raftsched.node.preflight import cluster_secrets

TLS = '[api_tls]\ncertificate = "c"\nkey = "k"\nclient_ca = "ca"\n'
CLIENT = '[[api_tls.clients]]\nname = "a"\nrole = "worker"\ntenant = "*"\n'


class Running:
    """A node's settings, its file and its keys."""

    def __init__(self, directory: Path, *, keys: Sequence[int] = ()) -> None:
        self.file, self.keys_file = directory / "node.toml", directory / "keys"
        self.adopted: list[config.NodeConfig] = []
        self.secrets: tuple[bytes, ...] = ()
        self.has_keys = bool(keys)
        self.write()
        self.write_keys(*keys)
        self.cipher = Cipher(read_keys(self.keys_file)) if keys else NO_KEYS
        self.claim = DirectoryClaim(directory / "data", node_id="n1", cluster="c")
        self.journal = Journal(SimulatedDisk(random.Random(1)), cipher=self.cipher)
        self.start()

    def start(self) -> None:
        """Begin with the settings of now."""
        key_ring = KeyRing(self.cipher, self.claim, self.journal)
        now = self.read().config
        self.live = LiveSettings(now, self.read, key_ring, cluster_secrets(now), self.adopt)

    def adopt(self, adopted: config.NodeConfig, secrets: tuple[bytes, ...]) -> None:
        self.adopted.append(adopted)
        self.secrets = secrets

    def read(self) -> config.ReadConfig:
        return config.read(self.file, {})

    def write(self, more: str = "", tables: str = "") -> None:
        keys = f'[encryption]\nkeys_file = "{self.keys_file}"\n' if self.has_keys else ""
        nodes = '[[nodes]]\nid = "n1"\nraft = "127.0.0.1:1"\napi = "127.0.0.1:2"\n'
        base = 'auth = "token"\nadmin_token_file = "t"\nnode_id = "n1"\ndata_dir = "/d"\n'
        self.file.write_text(f"{base}{more}\n{nodes}{keys}{tables}")

    def write_keys(self, *numbers: int) -> None:
        self.keys_file.touch(mode=0o600)
        lines = (f"k{number} {base64.b64encode(bytes([number]) * 32).decode()}\n" for number in numbers)
        self.keys_file.write_text("".join(lines))

    def reread(self) -> dict[str, Any]:
        """Return the line of the log."""
        with structlog.testing.capture_logs() as lines:
            self.live.reread()
        (line,) = (line for line in lines if line["event"].startswith("config_"))
        return dict(line)


def test_what_may_change_is_adopted_and_the_rest_waits_for_a_restart(tmp_path: Path) -> None:
    running = Running(tmp_path)
    running.write('log_level = "debug"\nretention_seconds = 60\nlease_seconds = 3\n')
    line = running.reread()
    assert line["changed"] == ["retention_seconds", "log_level"]
    assert line["needs_restart"] == ["lease_seconds"]
    (adopted,) = running.adopted
    assert (adopted.log_level, adopted.retention_seconds, adopted.lease_seconds) == ("debug", 60.0, 15.0)
    again = running.reread()
    assert (again["changed"], again["needs_restart"]) == ([], ["lease_seconds"])


def test_clients_with_certificates_are_adopted_but_not_another_certificate(tmp_path: Path) -> None:
    running = Running(tmp_path)
    running.write(tables=TLS)
    assert running.reread()["needs_restart"] == ["api_tls"]
    running.start()
    running.write(tables=TLS + CLIENT)
    assert running.reread()["changed"] == ["api_tls"]
    assert [client.name for tls in (running.adopted[-1].api_tls,) if tls for client in tls.clients] == ["a"]


@pytest.mark.parametrize(
    ("more", "keys", "told"),
    [
        ('log_level = "debug"\nlease_seconds = -1\n', (1,), "node.toml:6: lease_seconds: expected a number > 0.0: -1"),
        ('log_level = "debug"\n', (), "node.toml:12: encryption.keys_file: "),
        ('log_level = "debug"\n', (1, 1), "node.toml:12: encryption.keys_file: "),
    ],
)
def test_settings_at_fault_change_nothing_and_are_named_with_their_line(
    tmp_path: Path, more: str, keys: tuple[int, ...], told: str
) -> None:
    running = Running(tmp_path, keys=(1,))
    running.write(more)
    running.write_keys(*keys)
    line = running.reread()
    assert line["event"] == "config_refused"
    assert any(told in fault for fault in line["faults"]), line["faults"]
    assert running.adopted == []


def test_the_first_key_encrypts_from_now_on_and_a_changed_or_missing_one_is_refused(tmp_path: Path) -> None:
    running = Running(tmp_path, keys=(1,))
    running.claim.need_key(running.cipher.checks[0])
    old = running.cipher.encrypt(b"place", b"content")
    running.write_keys(2, 1)
    line = running.reread()
    assert (line["keys_added"], line["needs_restart"], running.cipher.key_id) == (["k2"], [], "k2")
    assert [key.id for key in running.claim.keys] == ["k2", "k1"], "recorded before it encrypts"
    assert running.cipher.decrypt(b"place", old) == b"content"
    other = Cipher(read_keys(running.keys_file))
    assert running.cipher.decrypt(b"place", other.encrypt(b"place", b"content")) == b"content"
    good = running.keys_file.read_text()
    for bad, reason in ((good.replace("k2 Ag", "k2 AA"), "k2 has other bytes"), (good[: good.index("k1")], "k1")):
        running.keys_file.write_text(bad)
        line = running.reread()
        assert (line["event"], reason in line["faults"][0]) == ("config_refused", True), line
    assert running.cipher.key_id == "k2"


def test_a_key_that_cannot_be_recorded_encrypts_nothing(tmp_path: Path) -> None:
    running = Running(tmp_path, keys=(1,))
    (tmp_path / "data" / "node.json.new").mkdir()
    running.write_keys(2, 1)
    running.reread()
    assert (running.cipher.key_id, running.claim.keys) == ("k1", ())
    (tmp_path / "data" / "node.json.new").rmdir()
    running.reread()
    assert running.cipher.key_id == "k2"


def test_secrets_are_reread_and_bad_ones_change_nothing(tmp_path: Path) -> None:
    running = Running(tmp_path)
    file, old, new = tmp_path / "secret", b"o" * 40, b"n" * 40
    file.write_bytes(old)
    setting = f'cluster_secret_file = "{file}"\n'
    running.write(setting)
    running.start()
    for lines in ((old, new), (new, old), (new,)):
        file.write_bytes(b"\n".join(lines))
        assert (running.reread()["changed"], running.secrets) == (["cluster_secret_file"], lines)
    file.write_bytes(new + b"\nshort\n")
    line = running.reread()
    told = f"cluster_secret_file: {file}: line 2: 5 bytes, expected 32 to 4096"
    assert (line["event"], told in line["faults"][0], running.secrets) == ("config_refused", True, (new,)), line
    file.write_bytes(new)
    running.write(setting.replace('secret"', 'other"'))
    assert running.reread()["needs_restart"] == ["cluster_secret_file"]
    assert running.secrets == (new,)
