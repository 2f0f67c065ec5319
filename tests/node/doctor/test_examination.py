"""All checks together, against nodes that answer: wrong settings, taken ports, other clocks and other nodes are told."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path

from raftsched.cli.local.cluster import free_ports
from raftsched.node.doctor.examination import examine
from raftsched.node.doctor.finding import Finding
from tests.api.node import SimulatedNode, serving


async def examined(tmp_path: Path, *others: str, **settings: str) -> Mapping[str, Finding]:
    """Examine a machine for node n1, whose settings have these URLs of other nodes."""
    lines = [f'{name} = "{value}"' for name, value in {"node_id": "n1", "auth": "none"}.items()]
    lines.append(f'data_dir = "{settings.get("data_dir", tmp_path / "data")}"')
    own, *raft = free_ports(2 + len(others))
    urls = (f"http://127.0.0.1:{settings.get('port', own)}", *others)
    for number, (url, port) in enumerate(zip(urls, raft, strict=True), 1):
        api = url.removeprefix("http://")
        lines += ["[[nodes]]", f'id = "n{number}"', f'raft = "127.0.0.1:{port}"', f'api = "{api}"']
    path = tmp_path / "node.toml"
    path.write_text("\n".join(lines))
    found = await examine(path, {})
    assert [each for each in found if bool(each.cure) != (each.level in ("warn", "fail"))] == []
    return {finding.check: finding for finding in found}


async def test_other_nodes_are_compared_by_id_and_clock(tmp_path: Path) -> None:
    other = SimulatedNode("n2")  # its clock is years ahead
    async with serving(other), serving(SimulatedNode("n9")) as stranger:
        found = await examined(tmp_path, other.api_url, stranger.node.api_url, "http://127.0.0.1:1")
    assert found["node n2, API"].level == "ok"
    assert found["node n2, clock"].level == "fail"
    assert found["node n2, release"].text == "1.2, and 0.1.0 here"
    assert found["node n3, API"].text.endswith("answers as node n9")
    assert found["node n3, API"].level == "fail"
    assert found["node n4, API"].level == found["node n4, raft"].level == "warn"


async def test_a_port_of_another_process_is_a_fault_and_nothing_is_changed(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        found = await examined(tmp_path, port=str(port))
    assert found[f"port {port}"].level == "fail"
    assert f"process {os.getpid()}" in found[f"port {port}"].text
    assert sorted(each.name for each in tmp_path.iterdir()) == ["node.toml"]


async def test_a_data_directory_that_is_a_file_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    found = await examined(tmp_path, data_dir=str(tmp_path / "file"))
    assert (found["data directory"].level, found["data directory"].text) == (
        "fail",
        f"{tmp_path / 'node.toml'}:3: data_dir: {tmp_path / 'file'} is not a directory",
    )


async def test_every_fault_of_the_settings_is_a_finding_and_the_machine_is_examined(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text("lease_second = 3\nlog_level = 5\n")
    found = await examine(path, {})
    assert {each.level for each in found if each.check == "settings"} == {"fail"}
    assert sum(each.check == "settings" for each in found) == 6
    assert {"memory", "versions"} <= {each.check for each in found}
    assert [each.level for each in await examine(None, {}) if each.check == "settings"] == ["skip"]
