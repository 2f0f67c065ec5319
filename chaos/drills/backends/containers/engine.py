"""Reach a Docker engine: the one that runs, or one of our own that is started for the drill and ended after it."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from chaos.drills.backends.containers.base_image import write_root

ROOT: Final = Path(__file__).parents[4]
_START_SECONDS_MAX: Final = 60.0
_PULL_SECONDS_MAX: Final = 60.0
_POLL_SECONDS: Final = 0.25
"""Each look starts a process of Docker's."""
_NO_NETWORKS: Final = ("--iptables=false", "--ip6tables=false", "--bridge=none")
"""Our own engine alters no rules of this machine's network. Containers meet in internal networks of their own."""
_BASE: Final = "raftsched-drill-base"
IMAGE: Final = "raftsched-drill"
USER_ID: Final = 10001
"""The user of the image."""
HARDENED: Final = ("--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges")
_ROOM_BYTES: Final = 3 << 30


class NoEngine(Exception):
    """There is no Docker engine, and none can be started; the message says what to install."""


class Engine:
    """A Docker engine, used by its command line."""

    def __init__(self, host: str = "") -> None:
        # Without buildx, as Debian's package is, the command line needs this setting.
        self._environment = os.environ | ({"DOCKER_HOST": host, "DOCKER_BUILDKIT": "0"} if host else {})
        self.is_own = bool(host)

    def __call__(self, *arguments: str, seconds: float = 60.0, stdin: Any = subprocess.DEVNULL) -> str:
        """Run `docker ARGUMENTS`, and return what it prints; raises `RuntimeError` with its errors."""
        ran = self.popen(*arguments, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            told, _ = ran.communicate(timeout=seconds)
        finally:
            ran.kill()
        if ran.returncode:
            raise RuntimeError(f"docker {' '.join(arguments)}: exit code {ran.returncode}\n{told}")
        return str(told).strip()

    def popen(self, *arguments: str, **options: Any) -> subprocess.Popen[Any]:
        return subprocess.Popen(["docker", *arguments], env=self._environment, **options)

    def answers(self) -> bool:
        return self.popen("info", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).wait(30) == 0

    def build(self) -> float:
        """Build the image from the Dockerfile as `IMAGE`; return the seconds."""
        began = time.monotonic()
        base = _default_base()
        try:
            self("pull", "--quiet", base, seconds=_PULL_SECONDS_MAX)
        except (RuntimeError, subprocess.TimeoutExpired):
            print(f"{base} can't be pulled: this machine's own Python takes its place", flush=True)
            base = self._import_base()
        network = ("--network", "host") if self.is_own else ()
        self("build", *network, "--build-arg", f"PYTHON_IMAGE={base}", "--tag", IMAGE, str(ROOT), seconds=900)
        return time.monotonic() - began

    def _import_base(self) -> str:
        importing = self.popen("import", "-", _BASE, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        with importing.stdin:  # type: ignore[union-attr]  # it is a pipe
            write_root(importing.stdin)  # type: ignore[arg-type]
        if importing.wait(60):
            raise RuntimeError("docker import: it refused the root filesystem")
        return _BASE

    def inspect(self, name: str) -> Any:
        """Return all that Docker knows of a container or an image."""
        return msgspec.json.decode(self("inspect", name))[0]


def _default_base() -> str:
    line = next(line for line in (ROOT / "Dockerfile").read_text().splitlines() if line.startswith("ARG PYTHON_IMAGE="))
    return line.partition("=")[2]


def why_no_engine() -> str:
    """Return "" if an engine answers or one can be started, or what is missing."""
    if shutil.which("docker") is None:
        return "this needs Docker: apt-get install --no-install-recommends docker.io"
    if Engine().answers():
        return ""
    if shutil.which("dockerd") is None:
        return "no Docker engine answers: apt-get install --no-install-recommends docker.io"
    return "" if os.geteuid() == 0 else "no Docker engine answers, and only root can start one"


@contextmanager
def engine(directory: Path) -> Iterator[Engine]:
    """Yield the engine that answers, or start one with all its files under `directory`; raises `NoEngine`."""
    if reason := why_no_engine():
        raise NoEngine(reason)
    running = Engine()
    if running.answers():
        yield running
        return
    with _own_engine(directory) as own:
        yield own


def roomy_place() -> str | None:
    """Return the directory for the images of an engine of our own: memory, if there is room; a disk may be busy."""
    memory = Path("/dev/shm")
    has_room = memory.is_dir() and shutil.disk_usage(memory).free > _ROOM_BYTES
    return str(memory) if has_room else None


@contextmanager
def _own_engine(directory: Path) -> Iterator[Engine]:
    log = directory / "dockerd.log"
    host = f"unix://{directory / 'docker.sock'}"
    places = ("--data-root", str(directory / "data"), "--exec-root", str(directory / "exec"))
    command = ["dockerd", "--host", host, "--pidfile", str(directory / "pid"), *places, *_NO_NETWORKS]
    with log.open("wb") as output:
        daemon = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, process_group=0)
    own = Engine(host)
    try:
        _wait_until_it_answers(own, daemon, log)
        yield own
    finally:
        for name in own("ps", "--all", "--quiet").split() if daemon.poll() is None else ():
            own("rm", "--force", "--volumes", name)
        daemon.terminate()
        daemon.wait(60)
        _unmount_below(directory)


def _unmount_below(directory: Path) -> None:
    """Unmount what dockerd leaves mounted, as namespaces, so that its files can be removed."""
    places = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for place in (place for place in places if Path(place).is_relative_to(directory)):
        subprocess.run(["umount", place], check=True)


def _wait_until_it_answers(own: Engine, daemon: subprocess.Popen[bytes], log: Path) -> None:
    def answers() -> bool:
        if daemon.poll() is not None:
            lines = log.read_text(errors="replace").splitlines()
            raise NoEngine(f"dockerd does not start on this machine: {' '.join(lines[-2:])}")
        return own.answers()

    wait_until(answers, "dockerd to answer", seconds=_START_SECONDS_MAX)


def wait_until(holds: Callable[[], bool], what: str, *, seconds: float) -> None:
    """Return once it holds; raises `RuntimeError` after `seconds`."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise RuntimeError(f"waited {seconds:g} s for {what}")
        time.sleep(_POLL_SECONDS)
