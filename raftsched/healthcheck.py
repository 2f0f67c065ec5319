"""Check whether the node in this container answers: `raftsched healthcheck`, for a container's HEALTHCHECK.

It runs every few seconds beside the node, so it imports nothing but small parts of the standard library; `__main__`
calls it before anything else is loaded. The same image runs workers and other commands, which have no port to ask: the
command lines of the processes in this container show what runs here, and without a node there is nothing to check. The
node's address is read as the node itself reads it: from its own environment and config file. With `[api_tls]` it is
asked by https, and its certificate is verified for the host by which other nodes reach it.
"""

from __future__ import annotations

import os
import socket
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

ANSWER_SECONDS: Final = 3.0
"""A node on a busy machine may take a second or two; the container runtime's own timeout must be longer."""
_LOOPBACK: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # what nodes listen on, not what this does
_TABLES: Final = {"nodes", "api_tls"}
_STATUS_BYTES: Final = len(b"HTTP/1.1 200")


class _Failed(Exception):
    """The check can't be made, or the node doesn't answer."""


class _Command(NamedTuple):
    """A raftsched command that runs in this container."""

    process: Path
    """Its directory in /proc."""
    arguments: tuple[str, ...]
    """Its own name first."""


class _Target(NamedTuple):
    """A node's API."""

    address: str
    """HOST:PORT."""
    is_https: bool = False
    name: str = ""
    """The host for which its certificate must be valid; "" = that of the address."""
    ca_file: str = ""
    """The authorities that certify it; "" = those of the system."""


def run(arguments: Sequence[str]) -> NoReturn:
    """Check HOST:PORT or a URL, or the node that it finds; exit 0 if it answers or none runs here, 1 otherwise."""
    try:
        print(check(arguments[0] if arguments else ""))  # noqa: T201  # the runtime keeps what is printed
    except _Failed as failure:
        sys.exit(f"raftsched: {failure}")
    sys.exit(0)


def check(address: str = "", *, processes: Path = Path("/proc")) -> str:
    """Return what was found healthy; raises `_Failed` otherwise. Without an address, `processes` shows the node."""
    if not address:
        node = next((each for each in _commands(processes) if each.arguments[0] == "node"), None)
        if node is None:
            return "no node runs here: nothing to check"
        target = _target_of(node)
    else:
        target = _target_at(address)
    _ask(target)
    return f"the node at {target.address} answers"


# -- what runs here ---------------------------------------------------------------------------------------------------


def _commands(processes: Path) -> list[_Command]:
    """Return the raftsched commands whose processes are visible, the first process first."""
    numbers = sorted(int(each.name) for each in processes.iterdir() if each.name.isdecimal())
    found = []
    for number in numbers:
        process = processes / str(number)
        try:
            words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue  # it has ended, or belongs to another user
        arguments = tuple(words[_after_program(words) : -1])
        if arguments:
            found.append(_Command(process, arguments))
    return found


def _after_program(words: Sequence[str]) -> int:
    """Return the arguments after `raftsched`, behind any interpreter or init."""
    names = [word.rpartition("/")[2] for word in words]
    return names.index("raftsched") + 1 if "raftsched" in names else len(words)


# -- where it listens -------------------------------------------------------------------------------------------------


def _target_of(node: _Command) -> _Target:
    settings = _settings_of(node)
    node_id = settings.get("node_id") or _own_id(settings)
    own = next((str(member["api"]) for member in settings.get("nodes", ()) if member["id"] == node_id), "")
    address = settings.get("api_listen") or own
    if not address:
        raise _Failed(f"no API address of node {node_id!r} in its settings: give it as raftsched healthcheck HOST:PORT")
    tls = settings.get("api_tls")
    if not tls:
        return _Target(str(address))
    name = _host_and_port(own)[0] if own else ""
    ca_file = str(node.process / "cwd" / tls["ca"]) if tls.get("ca") else ""
    return _Target(str(address), is_https=True, name=name, ca_file=ca_file)


def _own_id(settings: Mapping[str, Any]) -> str | None:
    from raftsched.own_node import nodes_here

    return next(iter(nodes_here((member["id"], str(member["raft"])) for member in settings.get("nodes", ()))), None)


def _target_at(address: str) -> _Target:
    """Return what HOST:PORT, http://HOST:PORT or https://HOST:PORT names; the certificate is checked for HOST."""
    is_https = address.startswith("https://")
    named = address.removeprefix("https://" if is_https else "http://").rstrip("/")
    return _Target(named, is_https=is_https, ca_file=os.environ.get("RAFTSCHED_CA_FILE", ""))


def _settings_of(node: _Command) -> dict[str, Any]:
    """Return the settings that determine the address, by the rules of `raftsched.config`."""
    environment = _environment_of(node.process)
    path = _config_of(node.arguments)
    settings: dict[str, Any] = {}
    try:
        if path:
            settings = tomllib.loads(((node.process / "cwd").resolve() / path).read_text(encoding="utf-8"))
        for name in ("api_listen", "node_id", "nodes", "api_tls"):
            if text := environment.get(f"RAFTSCHED_{name.upper()}"):
                settings[name] = _from_json(text) if name in _TABLES else text
    except (OSError, ValueError) as error:
        raise _Failed(f"the node's settings can't be read: {error}") from error
    return settings


def _environment_of(process: Path) -> Mapping[str, str]:
    """Return the environment of the process; if it is not readable, our own, which the container's runtime sets alike."""
    try:
        lines = (process / "environ").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return os.environ
    return dict(line.split("=", 1) for line in lines if "=" in line)


def _config_of(arguments: Sequence[str]) -> str:
    for number, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name == "--config":
            return value if equals else arguments[number + 1]
    return ""


def _from_json(text: str) -> Any:
    import json

    return json.loads(text)


# -- asking -----------------------------------------------------------------------------------------------------------


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal():
        raise _Failed(f"{address!r} is not HOST:PORT")
    return _LOOPBACK.get(host, host), int(port)


def _ask(target: _Target) -> None:
    """Return if the node answers /healthz with 200."""
    host, port = _host_and_port(target.address)
    request = f"GET /healthz HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n"
    answer = b""
    try:
        with _connected(target, host, port) as connection:
            connection.sendall(request.encode())
            while len(answer) < _STATUS_BYTES and (piece := connection.recv(_STATUS_BYTES - len(answer))):
                answer += piece
    except OSError as error:
        raise _Failed(f"no answer from the node at {host}:{port}: {error}") from error
    if not answer.endswith(b" 200"):
        raise _Failed(f"the node at {host}:{port} answers {answer.decode(errors='replace')!r} to /healthz")


def _connected(target: _Target, host: str, port: int) -> socket.socket:
    """Return a connection, with TLS if the node uses it; raises OSError, also for a certificate that is refused."""
    connection = socket.create_connection((host, port), timeout=ANSWER_SECONDS)
    if not target.is_https:
        return connection
    import ssl

    try:
        context = ssl.create_default_context(cafile=target.ca_file or None)
        return context.wrap_socket(connection, server_hostname=target.name or host)
    except BaseException:
        connection.close()
        raise
