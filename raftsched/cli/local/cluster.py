"""Run a cluster of real node processes on this machine's loopback, for `dev`, `demo`, `bench` and the acceptance tests.

Each node is a process of its own with its own data directory and log file; `cluster.json` in the common directory has
their addresses. Nodes are reached only by their HTTP API and by signals. They stop when this process is gone.
"""

from __future__ import annotations

import os
import random
import secrets
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import msgspec

from raftsched.cli.local.children import UNTIL_STDIN_ENDS, lifeline
from raftsched.errors import Unavailable

_T = TypeVar("_T")
HOST = "127.0.0.1"
LOOPBACK_TARGETS: Final = {"allow": ["127.0.0.0/8", "::1"]}
"""The targets of HTTP jobs on a cluster for development; the cluster's own ports are refused all the same."""
START_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 10.0
_POLL_SECONDS = 0.02
_PORTS = range(15_000, 32_000)
"""Below 32,768, the first port of outgoing connections on Linux: one of them could take a port before its node listens."""


class LocalNode:
    """A node process; it can be killed, paused and started again over the same data."""

    def __init__(self, node_id: str, api_port: int, raft_port: int, directory: Path, *, token: str = "") -> None:
        self.id = node_id
        self.token = token
        self.api = f"http://{HOST}:{api_port}"
        self.raft = f"{HOST}:{raft_port}"
        self.directory = directory
        self.process: subprocess.Popen[bytes] | None = None
        self.own_config: Path | None = None
        """Its own config file, if it was added later."""
        self.ca_file: Path | None = None
        """The authorities that certify its API, if it is reached by https."""

    @property
    def data_directory(self) -> Path:
        return self.directory / "data"

    @property
    def log_file(self) -> Path:
        return self.directory / "node.log"

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self, config: Path) -> None:
        """Start the process, by its own config file if it has one; it is not ready yet when this returns."""
        config = self.own_config or config
        environment = os.environ | {"RAFTSCHED_NODE_ID": self.id, "RAFTSCHED_DATA_DIR": str(self.data_directory)}
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(  # noqa: S603  # our own module, by our own interpreter
                self.command(config),
                env=environment,
                stdin=lifeline(),
                stdout=log,
                stderr=log,
                process_group=0,  # only we get Ctrl-C; and without us the kernel ends a paused node, which reads nothing
            )

    def command(self, config: Path) -> list[str]:
        """Return the command line of the process."""
        return [sys.executable, "-m", "raftsched", "node", "--config", str(config), UNTIL_STDIN_ENDS]

    def signal(self, number: signal.Signals) -> None:
        if self.process is not None and self.is_running:
            self.process.send_signal(number)

    def kill(self) -> None:
        """Kill it with SIGKILL, like a power failure, and wait until it is gone."""
        self.signal(signal.SIGKILL)
        self.wait()

    def stop(self) -> int | None:
        """Ask it to stop, and kill it after `STOP_SECONDS_MAX`; return its exit code."""
        self.signal(signal.SIGTERM)
        return self.ended()

    def ended(self) -> int | None:
        """Return the exit code of a node that was asked to stop; one that is late is killed, and has none."""
        try:
            return self.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
            return None

    def last_words(self) -> str:
        """Return the last line of its log."""
        lines = self.log_file.read_text(encoding="utf-8", errors="replace").splitlines()
        return lines[-1] if lines else f"nothing in {self.log_file}"

    def wait(self, timeout: float | None = None) -> int | None:
        return self.process.wait(timeout) if self.process else None

    def is_ready(self) -> bool:
        """Return whether it answers that it can serve."""
        try:
            self.get("/readyz", timeout=1.0)
        except (OSError, msgspec.DecodeError):
            return False
        return True

    def says_it_leads(self) -> bool:
        """Return whether it answers that it leads and can serve."""
        try:
            answer = self.get("/api/v1/cluster", timeout=1.0)
        except (OSError, msgspec.DecodeError):
            return False
        return bool(answer["leader"] == self.id) and self.is_ready()

    def get(self, path: str, *, timeout: float = 2.0) -> Any:
        """GET a JSON document of the node; raises `OSError` if there is no good answer."""
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        request = urllib.request.Request(f"{self.api}{path}", headers=headers)  # noqa: S310  # our own http URL
        tls = ssl.create_default_context(cafile=self.ca_file) if self.ca_file else None
        with urllib.request.urlopen(request, timeout=timeout, context=tls) as reply:  # noqa: S310
            return msgspec.json.decode(reply.read())


class LocalCluster:
    """Node processes under one directory, stopped when the context ends."""

    node_type: type[LocalNode] = LocalNode
    """Subclasses run nodes in another way."""

    def __init__(
        self,
        directory: Path,
        *,
        node_count: int = 3,
        base_port: int | None = None,
        settings: Mapping[str, Any] | None = None,
        with_tokens: bool = False,
    ) -> None:
        """Prepare the nodes; `with_tokens` makes an admin token, in `token_file`, that callers of the API need."""
        self.directory = directory
        self.config = directory / "cluster.toml"
        self.token_file = directory / "admin.token" if with_tokens else None
        self._settings = {**(settings or {}), **_access(self.token_file)}
        token = "" if self.token_file is None else self.token_file.read_text(encoding="ascii").strip()
        self._node_count = node_count
        ports = _ports(node_count, base_port)
        self.nodes = [
            self.node_type(f"n{number}", api, raft, directory / f"n{number}", token=token)
            for number, (api, raft) in enumerate(ports, start=1)
        ]
        for node in self.nodes:
            node.directory.mkdir(parents=True, exist_ok=True)
        self.config.write_text(_toml(self.nodes, self._settings), encoding="utf-8")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def urls(self) -> list[str]:
        return [node.api for node in self.nodes]

    def start(self) -> None:
        """Start all nodes that don't run, and write `cluster.json`."""
        for node in self.nodes:
            if not node.is_running:
                node.start(self.config)
        self.write_description()

    def start_node(self, node: LocalNode) -> None:
        node.start(self.config)
        self.write_description()

    def new_node(self) -> LocalNode:
        """A further node with an id that was never used, to be started and added; its config names all others and itself."""
        self._node_count += 1
        api, raft = free_ports(2)
        token = self.nodes[0].token
        node = self.node_type(f"n{self._node_count}", api, raft, self.directory / f"n{self._node_count}", token=token)
        node.directory.mkdir(parents=True)
        self.nodes.append(node)
        node.own_config = node.directory / "cluster.toml"
        node.own_config.write_text(_toml(self.nodes, self._settings), encoding="utf-8")
        return node

    def stop(self) -> None:
        """Ask all nodes to stop, once: a second signal would end them at once."""
        for node in self.nodes:
            node.signal(signal.SIGCONT)
            node.signal(signal.SIGTERM)
        for node in self.nodes:
            node.ended()

    def kill(self) -> None:
        """SIGKILL all nodes at once."""
        for node in self.nodes:
            node.signal(signal.SIGKILL)
        for node in self.nodes:
            node.wait()

    def write_description(self) -> None:
        rows = [
            {"id": node.id, "pid": node.process.pid if node.process else None, "api": node.api, "raft": node.raft}
            for node in self.nodes
        ]
        text = msgspec.json.format(msgspec.json.encode({"nodes": rows}), indent=2)
        (self.directory / "cluster.json").write_bytes(text + b"\n")

    def leader(self) -> LocalNode | None:
        """Return the node that answers that it leads and is ready; None if there is none."""
        return next((node for node in self.nodes if node.is_running and node.says_it_leads()), None)

    def wait_for_leader(self, *, seconds: float = START_SECONDS_MAX) -> LocalNode:
        """Return the leader once there is one; raises `Unavailable` naming the log files after `seconds`."""
        return self.wait_until(self.leader, what="a leader", seconds=seconds)

    def wait_until_ready(self, node: LocalNode, *, seconds: float = START_SECONDS_MAX) -> None:
        """Return once the node answers that it is ready."""
        self.wait_until(node.is_ready, what=f"node {node.id} to be ready", seconds=seconds)

    def wait_until(self, probe: Callable[[], _T | None], *, what: str, seconds: float = START_SECONDS_MAX) -> _T:
        """Poll until `probe` returns something true; raises `Unavailable` if it does not within `seconds`."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if found := probe():
                return found
            self._check_for_failed_nodes()
            time.sleep(_POLL_SECONDS)
        raise Unavailable(f"waited {seconds:.0f} s for {what}; see {self.directory}/n*/node.log")

    def _check_for_failed_nodes(self) -> None:
        """Raise `Unavailable` if a node ended by itself; a signal ends it with a negative code."""
        for node in self.nodes:
            code = node.process.poll() if node.process else None
            if code is not None and code > 0:
                raise Unavailable(f"{node.id} ended with exit code {code}: {node.last_words()}")


def _access(token_file: Path | None) -> dict[str, Any]:
    """Return the settings of who may use the API; makes the admin token in `token_file` if there is none yet."""
    if token_file is None:
        return {}
    if not token_file.exists():
        token_file.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(token_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_hex(32) + "\n")
    return {"auth": "token", "admin_token_file": str(token_file.resolve())}


def _ports(node_count: int, base_port: int | None) -> list[tuple[int, int]]:
    if base_port is not None:
        return [(base_port + 10 * number, base_port + 10 * number + 1) for number in range(node_count)]
    free = free_ports(2 * node_count)
    return list(zip(free[::2], free[1::2], strict=True))


def free_ports(count: int) -> list[int]:
    """Return ports that were free a moment ago; drawn at random, since tests in other processes draw as well."""
    drawn = random.SystemRandom().sample(_PORTS, len(_PORTS))
    return list(islice(filter(_is_free, drawn), count))


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def _toml(nodes: list[LocalNode], settings: Mapping[str, Any]) -> str:
    lines = [] if "auth" in settings else ['auth = "none"  # loopback only']
    lines += [f"{name} = {_toml_value(value)}" for name, value in settings.items()]
    for node in nodes:
        lines += ["", "[[nodes]]", f'id = "{node.id}"', f'raft = "{node.raft}"']
        lines.append(f'api = "{node.api.removeprefix("http://")}"')
    return "\n".join(lines) + "\n"


def _toml_value(value: Any) -> str:
    """Write scalars and lists as in JSON; tables differ."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{name} = {_toml_value(each)}" for name, each in value.items()) + " }"
    return msgspec.json.encode(value).decode()
