"""Three nodes and a worker in containers, as `configs/compose.yaml` runs them: hardened, and with the image's defaults."""

from __future__ import annotations

import os
import secrets
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from chaos.drills.backends.containers.engine import HARDENED, IMAGE, USER_ID, Engine, wait_until

_HERE: Final = Path(__file__).parent
_FILES: Final = ("admin.token", "cluster.secret")
_LEADER_SECONDS_MAX: Final = 60.0
_ASK_FOR_LEADER: Final = """
import json, urllib.request
token = open("/etc/raftsched/admin.token").read().strip()
headers = {"Authorization": f"Bearer {token}"}
request = urllib.request.Request("http://127.0.0.1:8400/api/v1/cluster", headers=headers)
print(json.load(urllib.request.urlopen(request, timeout=5))["leader"] or "")
"""


class Containers:
    """The containers of a drill; `names` are the nodes' hosts, as `configs/cluster.toml` has them."""

    names: Final = ("raftsched-1", "raftsched-2", "raftsched-3")

    def __init__(self, engine: Engine, directory: Path) -> None:
        self._engine = engine
        self._prefix = f"raftsched-drill-{secrets.token_hex(3)}"
        self._directory = directory
        self.ledger = directory / "ledger" / "runs"
        self.ledger.parent.mkdir(parents=True)
        os.chown(self.ledger.parent, USER_ID, USER_ID)
        for name in _FILES:
            path = directory / name
            path.write_text(secrets.token_hex(32) + "\n")
            path.chmod(0o400)
            os.chown(path, USER_ID, USER_ID)

    # -- life ---------------------------------------------------------------------------------------------------------

    @contextmanager
    def running(self) -> Iterator[None]:
        """Start three nodes and a worker; remove all that was made when the context ends."""
        self._engine("network", "create", "--internal", self._prefix)
        try:
            for name in self.names:
                self._start_node(name)
            self._run("worker", "--detach", *self._for_app(), IMAGE, "worker", "--app", "app:worker")
            yield
        finally:
            mine = self._engine("ps", "--all", "--quiet", "--filter", f"name={self._prefix}").split()
            for container in mine:
                self._engine("rm", "--force", "--volumes", container)
            self._engine("network", "rm", self._prefix)

    def _start_node(self, name: str) -> None:
        files = [f"--volume={self._directory / file}:/etc/raftsched/{file}:ro" for file in _FILES]
        # The image's own command, user, config file and health check, which is only asked more often.
        self._run(name, "--detach", "--hostname", name, "--health-interval", "1s", *files, IMAGE)

    def start_load(self, count: int) -> subprocess.Popen[str]:
        """Start the program that submits `count` jobs and waits for them; its output is a pipe."""
        python = ("--entrypoint", "python", *self._for_app(), IMAGE, "app.py", str(count))
        return self._engine.popen(*self._command("load", *python), stdout=subprocess.PIPE, text=True)

    def _for_app(self) -> Sequence[str]:
        urls = " ".join(f"http://{name}:8400" for name in self.names)
        variables = ("--env", f"RAFTSCHED_URL={urls}", "--env", "RAFTSCHED_TOKEN_FILE=/run/token")
        volumes = (
            f"{self._directory / 'admin.token'}:/run/token:ro",
            f"{_HERE}:/app:ro",
            f"{self.ledger.parent}:/ledger",
        )
        return (*variables, "--workdir", "/app", *(f"--volume={volume}" for volume in volumes))

    def _run(self, name: str, *arguments: str) -> None:
        self._engine(*self._command(name, *arguments))

    def _command(self, name: str, *arguments: str) -> Sequence[str]:
        network = ("--network", self._prefix, "--network-alias", name)
        return ("run", "--name", f"{self._prefix}-{name}", *network, *HARDENED, *arguments)

    # -- one container --------------------------------------------------------------------------------------------------

    def __call__(self, verb: str, name: str, *arguments: str) -> str:
        """Run `docker VERB CONTAINER ARGUMENTS`, and return what it prints."""
        return self._engine(*verb.split(), f"{self._prefix}-{name}", *arguments)

    def inspect(self, name: str) -> Any:
        return self._engine.inspect(f"{self._prefix}-{name}")

    def health(self, name: str) -> str:
        return str(self.inspect(name)["State"]["Health"]["Status"])

    def wait_until_healthy(self, name: str) -> None:
        try:
            wait_until(lambda: self.health(name) == "healthy", f"{name} to be healthy", seconds=_LEADER_SECONDS_MAX)
        except RuntimeError as error:
            error.add_note(self("logs", name)[-2_000:])
            raise

    def leader(self) -> str:
        """Return the name of the node that leads, once there is one."""
        found = ""

        def leads() -> bool:
            nonlocal found
            asked = next(name for name in self.names if self.inspect(name)["State"]["Running"])
            try:
                found = self("exec", asked, "python", "-c", _ASK_FOR_LEADER)
            except RuntimeError:  # no answer at present
                return False
            return bool(found)

        wait_until(leads, "a leader", seconds=_LEADER_SECONDS_MAX)
        return self.names[int(found.removeprefix("n")) - 1]

    def processes(self, name: str) -> list[str]:
        """Return `STAT COMMAND` of each process of a container."""
        return self("top", name, "-eo", "pid,stat,args").splitlines()[1:]
