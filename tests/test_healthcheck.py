"""The health check of the image: it finds the node by its process, asks it, and costs next to nothing."""

from __future__ import annotations

import json
import re
import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread

import pytest
import trustme

from raftsched import healthcheck
from tests.acceptance.conftest import run_cli

ROOT = Path(__file__).parents[1]
PYTHON = "/usr/local/bin/python3.11"
HEAVY = (
    "aiohttp",
    "asyncio",
    "click",
    "email",
    "http",
    "lmdb",
    "msgspec",
    "rich",
    "ssl",
    "structlog",
    "urllib.request",
)


@contextmanager
def answering(answer: bytes, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """HOST:PORT of a server that answers one request."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with (
                suppress(OSError),
                connection if tls is None else tls.wrap_socket(connection, server_side=True) as connection,
            ):
                connection.recv(4096)
                connection.sendall(answer)

        thread = Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join(10)


def nobody() -> str:
    """HOST:PORT where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


class Processes:
    """A directory like /proc."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "proc"
        self.directory.mkdir()
        (self.directory / "self").mkdir()

    def add(
        self, number: int, *words: str, environment: Mapping[str, str] | None = None, cwd: Path = Path("/")
    ) -> None:
        process = self.directory / str(number)
        process.mkdir()
        (process / "cmdline").write_bytes("".join(f"{word}\0" for word in words).encode())
        lines = "".join(f"{name}={value}\0" for name, value in (environment or {}).items())
        (process / "environ").write_bytes(lines.encode())
        (process / "cwd").symlink_to(cwd)

    def check(self) -> str:
        return healthcheck.check(processes=self.directory)


@pytest.fixture
def processes(tmp_path: Path) -> Processes:
    return Processes(tmp_path)


@pytest.mark.parametrize(
    "words",
    [
        (PYTHON, "/usr/local/bin/raftsched", "worker", "--app", "mail:worker"),
        ("/sbin/docker-init", "--", "raftsched", "worker", "--app", "node"),
        (PYTHON, "worker.py"),
        (PYTHON, "-m", "raftsched", "list"),
        ("sh", "-c", "sleep 1"),
        (PYTHON, "/usr/local/bin/raftsched"),
    ],
)
def test_a_container_without_a_node_has_nothing_to_check(processes: Processes, words: tuple[str, ...]) -> None:
    processes.add(1, *words)
    processes.add(20, PYTHON, "/usr/local/bin/raftsched", "healthcheck")
    assert processes.check() == "no node runs here: nothing to check"


@pytest.mark.parametrize(
    "words",
    [
        (PYTHON, "/usr/local/bin/raftsched", "node", "--config", "own.toml"),
        (PYTHON, "-m", "raftsched", "node", "--config=own.toml"),
        ("/usr/bin/tini", "-g", "--", "raftsched", "node", "--config", "own.toml"),
    ],
)
def test_a_node_is_asked_where_its_config_file_says_that_it_listens(
    processes: Processes, tmp_path: Path, words: tuple[str, ...]
) -> None:
    with answering(b"HTTP/1.1 200 OK\r\n\r\n") as address:
        nodes = "".join(
            f'[[nodes]]\nid = "{name}"\nraft = "h:1"\napi = "{api}"\n' for name, api in (("n1", "h:2"), ("n2", address))
        )
        (tmp_path / "own.toml").write_text(nodes)
        processes.add(1, *words, environment={"RAFTSCHED_NODE_ID": "n2"}, cwd=tmp_path)
        assert processes.check() == f"the node at {address} answers"


def test_a_node_without_an_id_is_found_by_the_name_of_its_host(processes: Processes, tmp_path: Path) -> None:
    with answering(b"HTTP/1.1 200 OK\r\n\r\n") as address:
        hosts = {"other": "h:2", socket.gethostname(): address}
        nodes = [{"id": host[::-1], "raft": f"{host}:1", "api": api} for host, api in hosts.items()]
        processes.add(1, "raftsched", "node", environment={"RAFTSCHED_NODES": json.dumps(nodes)}, cwd=tmp_path)
        assert processes.check() == f"the node at {address} answers"


def test_a_node_with_tls_is_asked_by_https_and_its_certificate_is_verified(
    processes: Processes, tmp_path: Path
) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("node1.internal").configure_cert(context)
    settings = 'node_id = "n1"\n[[nodes]]\nid = "n1"\nraft = "h:1"\napi = "{}:1"\n[api_tls]\nca = "{}"\n'
    found = []
    for name, ca in (("node1.internal", "ca.pem"), ("node2.internal", "ca.pem"), ("node1.internal", "")):
        with answering(b"HTTP/1.1 200 OK\r\n\r\n", context) as address:
            (tmp_path / "own.toml").write_text(settings.format(name, ca))
            shutil.rmtree(processes.directory / "7", ignore_errors=True)
            listen = {"RAFTSCHED_API_LISTEN": address}
            processes.add(7, "raftsched", "node", "--config", "own.toml", environment=listen, cwd=tmp_path)
            try:
                found.append(processes.check().removeprefix(f"the node at {address} "))
            except healthcheck._Failed as failure:
                found.append("refused" if "certificate verify failed" in str(failure) else str(failure))
    assert found == ["answers", "refused", "refused"]


def test_the_environment_counts_before_the_file(processes: Processes, tmp_path: Path) -> None:
    nodes = json.dumps([{"id": "n1", "raft": "h:1", "api": "h:2"}])
    (tmp_path / "own.toml").write_text('node_id = "n1"\napi_listen = "h:3"\n')
    with answering(b"HTTP/1.1 200 OK\r\n\r\n") as address:
        _, port = address.split(":")
        everywhere = {"RAFTSCHED_API_LISTEN": f"0.0.0.0:{port}", "RAFTSCHED_NODES": nodes}
        words = (PYTHON, "/usr/local/bin/raftsched", "node", "--config", str(tmp_path / "own.toml"))
        processes.add(7, *words, environment=everywhere)
        assert processes.check() == f"the node at 0.0.0.0:{port} answers"


@pytest.mark.parametrize(
    ("environment", "config", "told"),
    [
        ({"RAFTSCHED_API_LISTEN": "nonsense"}, "", "'nonsense' is not HOST:PORT"),
        ({}, 'node_id = "n1"', "no API address of node 'n1'"),
        ({}, "node_id =", "settings can't be read"),
        ({"RAFTSCHED_NODES": "[{"}, "", "settings can't be read"),
    ],
)
def test_settings_of_no_use_are_named(
    processes: Processes, tmp_path: Path, environment: dict[str, str], config: str, told: str
) -> None:
    (tmp_path / "own.toml").write_text(config)
    processes.add(1, "raftsched", "node", "--config", "own.toml", environment=environment, cwd=tmp_path)
    with pytest.raises(healthcheck._Failed, match=re.escape(told)):
        processes.check()


def test_command_exits_by_what_the_node_answers() -> None:
    with answering(b"HTTP/1.1 200 OK\r\n\r\n") as address:
        ran = run_cli("healthcheck", address)
        assert (ran.returncode, ran.stdout, ran.stderr) == (0, f"the node at {address} answers\n", "")
    with answering(b"HTTP/1.1 503 Service Unavailable\r\n\r\n") as address:
        ran = run_cli("healthcheck", address)
        assert (ran.returncode, "503" in ran.stderr) == (1, True)
    with answering(b"") as address:
        assert run_cli("healthcheck", address).returncode == 1
    ran = run_cli("healthcheck", nobody())
    assert (ran.returncode, ran.stdout) == (1, "")
    assert "no answer from the node" in ran.stderr
    assert "Without HOST:PORT the node is found by its process" in run_cli("healthcheck", "--help").stdout
    assert run_cli("healthcheck", "--nonsense").returncode == 2


def test_nothing_heavy_is_imported_for_it() -> None:
    """What it costs is Python's own start; measured: 0.04 s of CPU."""
    program = (
        "import sys; sys.argv = ['raftsched', 'healthcheck', 'nobody.invalid:0x'];"
        "import atexit; atexit.register(lambda: print(*sys.modules)); import raftsched.__main__ as m; m.run()"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "is not HOST:PORT" in ran.stderr
    assert "socket" in ran.stdout.split()
    assert [name for name in HEAVY if name in ran.stdout.split()] == []


def test_image_checks_health_by_the_command_and_holds_bytecode() -> None:
    """No image is built here: the text of its recipe is looked at."""
    joined = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    steps = [line.split(None, 1) for line in joined.splitlines() if line and not line.startswith("#")]
    kinds = [kind for kind, _ in steps]
    [check] = [rest for kind, rest in steps if kind == "HEALTHCHECK"]
    options, command = check.split(" CMD ")
    assert json.loads(command) == ["raftsched", "healthcheck"]
    seconds = {name: int(value) for name, value in re.findall(r"--([a-z-]+)=(\d+)s?", options)}
    assert seconds["timeout"] > healthcheck.ANSWER_SECONDS
    assert seconds["interval"] > seconds["timeout"]
    assert seconds["start-period"] >= 30
    final = kinds.index("FROM", 1)
    [compiled] = [n for n, (kind, rest) in enumerate(steps) if kind == "RUN" and "-m compileall" in rest]
    assert final < kinds.index("COPY", final) < compiled < kinds.index("USER"), "as root, once all sources are there"
    assert "PYTHONDONTWRITEBYTECODE" not in joined
