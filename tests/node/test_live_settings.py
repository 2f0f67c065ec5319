"""After SIGHUP a node adopts what may change, all or nothing, and says what waits for a restart."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import structlog

from raftsched import config
from raftsched.encryption.cipher import NO_KEYS, Cipher
from raftsched.encryption.keys import read_keys
from raftsched.node.live_settings import LiveSettings

TLS = '[api_tls]\ncertificate = "c"\nkey = "k"\nclient_ca = "ca"\n'
CLIENT = '[[api_tls.clients]]\nname = "a"\nrole = "worker"\ntenant = "*"\n'


class Running:
    """A node's settings, its file and its keys."""

    def __init__(self, directory: Path, *, keys: Sequence[int] = ()) -> None:
        self.file, self.keys_file = directory / "node.toml", directory / "keys"
        self.adopted: list[config.NodeConfig] = []
        self.has_keys = bool(keys)
        self.write()
        self.write_keys(*keys)
        self.cipher = Cipher(read_keys(self.keys_file)) if keys else NO_KEYS
        self.live = LiveSettings(self.read().config, self.read, self.cipher, self.adopted.append)

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
        (line,) = lines
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
    running.live = LiveSettings(running.read().config, running.read, NO_KEYS, running.adopted.append)
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


def test_a_key_that_was_added_decrypts_and_a_changed_one_is_refused(tmp_path: Path) -> None:
    running = Running(tmp_path, keys=(1,))
    running.write_keys(2, 1)
    line = running.reread()
    assert (line["keys_added"], line["needs_restart"]) == (
        ["k2"],
        ["encryption.keys_file (the first key, which encrypts)"],
    )
    other = Cipher(read_keys(running.keys_file))
    assert running.cipher.decrypt(b"place", other.encrypt(b"place", b"content")) == b"content"
    assert running.cipher.key_id == "k1"
    running.keys_file.write_text(running.keys_file.read_text().replace("k2 Ag", "k2 AA"))
    line = running.reread()
    assert (line["event"], "k2 has other bytes" in line["faults"][0]) == ("config_refused", True)
