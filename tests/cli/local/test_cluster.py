"""What a local cluster takes of this machine; the nodes themselves are for the acceptance tests."""

from __future__ import annotations

import random
import socket

import pytest

from raftsched.cli.local import cluster as local_cluster
from raftsched.cli.local.cluster import HOST, free_ports

EPHEMERAL_PORT_MIN = 32_768
"""From here on Linux takes the ports of outgoing connections."""


def test_free_ports_differ_and_are_none_that_an_outgoing_connection_gets() -> None:
    ports = free_ports(50)
    assert len(set(ports)) == 50
    assert max(ports) < EPHEMERAL_PORT_MIN


def test_free_ports_differ_also_between_tests_with_the_same_seed() -> None:
    random.seed(1)
    ports = free_ports(10)
    random.seed(1)
    assert free_ports(10) != ports


def test_free_ports_leave_out_what_somebody_has_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    [port] = free_ports(1)
    monkeypatch.setattr(local_cluster, "_PORTS", range(port, port + 1))
    with socket.socket() as bound:
        bound.bind((HOST, port))
        assert free_ports(1) == []
    assert free_ports(1) == [port]
