"""The service manager is told that a node is ready, by a socket in the file system or an abstract one."""

from __future__ import annotations

import secrets
import socket
from contextlib import closing
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from raftsched.node.service_manager import READY, notify


def test_manager_is_told_at_either_kind_of_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, abstract = str(tmp_path / "notify"), f"raftsched-{secrets.token_hex(8)}"
    for address, name in ((path, path), ("\0" + abstract, "@" + abstract)):
        with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as manager:
            manager.bind(address)
            monkeypatch.setenv("NOTIFY_SOCKET", name)
            notify(READY)
            assert manager.recv(100, socket.MSG_DONTWAIT) == b"READY=1"


def test_node_without_a_manager_or_with_a_dead_one_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    notify(READY)
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "gone"))
    with capture_logs() as logs:
        notify(READY)
    assert [entry["event"] for entry in logs] == ["service_manager_not_told"]
