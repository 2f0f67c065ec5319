"""Build the image, run three nodes and a worker of it, kill the leader under load, and look at what the containers may do.

    python -m tests.drills.container --jobs 3000 --demo

It needs Docker; an engine of its own is started if none answers, which needs root and Debian's `docker.io`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from chaos.drills.backends.containers.engine import (
    IMAGE,
    ROOT,
    USER_ID,
    Engine,
    NoEngine,
    engine,
    roomy_place,
    wait_until,
)
from tests.drills.container import demo
from tests.drills.container.cluster import Containers

_NO_CAPABILITIES: Final = f"CapEff:\t{0:016x}"


def run(jobs: int, *, with_demo: bool = False) -> Iterator[str]:
    """Do the whole drill; yield what is wrong. `with_demo` runs `raftsched demo` as well."""
    with tempfile.TemporaryDirectory(prefix="raftsched-containers-", dir=roomy_place()) as name:
        directory = Path(name)
        directory.chmod(0o711)  # so that the containers' user can reach its files
        (directory / "engine").mkdir()
        with engine(directory / "engine") as docker:
            _say(f"built the image in {docker.build():.1f} s")
            yield from _wrong_settings(docker.inspect(IMAGE)["Config"])
            yield from _missing_files(docker)
            containers = Containers(docker, directory)
            with containers.running():
                yield from _drive(containers, jobs)
            if with_demo:
                (directory / "demo").mkdir()
                yield from demo.faults(docker, directory / "demo")


def _wrong_settings(config: dict[str, object]) -> Iterator[str]:
    wanted = {"User": f"{USER_ID}:{USER_ID}", "StopSignal": "SIGTERM", "Entrypoint": ["raftsched"]}
    yield from (f"image: {name} is {config[name]}" for name, value in wanted.items() if config[name] != value)


def _missing_files(docker: Engine) -> Iterator[str]:
    """Yield the files of the package that the image lacks: templates and others that are no code."""
    program = "import os, raftsched; os.chdir(raftsched.__path__[0]); print(*(f'{d}/{n}' for d, _, f in os.walk('.') for n in f))"
    inside = docker("run", "--rm", "--network", "none", "--entrypoint", "python", IMAGE, "-c", program).split()
    package = ROOT / "raftsched"
    files = (path.relative_to(package) for path in package.rglob("*") if path.is_file() and path.suffix != ".pyc")
    yield from (f"image: raftsched/{path} is not installed" for path in files if f"./{path}" not in inside)


def _drive(containers: Containers, jobs: int) -> Iterator[str]:
    began = time.monotonic()
    for name in containers.names:
        containers.wait_until_healthy(name)
    _say(f"all nodes are healthy after {time.monotonic() - began:.1f} s")
    load = containers.start_load(jobs)
    assert load.stdout is not None
    load.stdout.readline()
    leader = containers.leader()
    containers("kill", leader)
    _say(f"killed {leader}, the leader, with {jobs // 2} jobs submitted")
    new = containers.leader()
    _say(f"{new} leads")
    containers("start", leader)
    if load.wait(180):
        yield f"load: exit code {load.returncode}"
    containers.wait_until_healthy(leader)
    ran = Counter(containers.ledger.read_text().split())
    _say(f"{len(ran)} jobs ended, {ran.total()} runs, {time.monotonic() - began:.1f} s")
    yield from (f"job {number} ran {ran[str(number)]} times" for number in range(jobs) if ran[str(number)] != 1)
    for name in (new, "worker"):
        yield from _confinement_faults(containers, name)
        yield from _reaping_faults(containers, name)
    yield from _stopping_faults(containers)


def _confinement_faults(containers: Containers, name: str) -> Iterator[str]:
    status = containers("exec", name, "python", "-c", "print(open('/proc/1/status').read())").splitlines()
    for line in (_NO_CAPABILITIES, f"Uid:\t{USER_ID}\t{USER_ID}\t{USER_ID}\t{USER_ID}", "NoNewPrivs:\t1"):
        if line not in status:
            yield f"{name}: its first process has no line {line!r}"
    for place in ("/tmp", "/etc/raftsched", "/usr/local/bin"):
        try:
            containers("exec", name, "python", "-c", f"open('{place}/new', 'w')")
        except RuntimeError:
            continue
        yield f"{name}: {place} can be written"


def _reaping_faults(containers: Containers, name: str) -> Iterator[str]:
    """Leave an orphan in the container, which its first process must reap."""
    containers("exec", name, "sh", "-c", "sleep 0.2 & sleep 0.2 & exit 0")
    try:
        wait_until(
            lambda: not [line for line in containers.processes(name) if "sleep" in line], "orphans to end", seconds=20
        )
    except RuntimeError:
        yield f"{name}: orphans are left: {containers.processes(name)}"


def _stopping_faults(containers: Containers) -> Iterator[str]:
    for name in ("worker", *containers.names):
        containers("stop --time 30", name)
        if code := containers.inspect(name)["State"]["ExitCode"]:
            yield f"{name}: exit code {code} after `docker stop`: {containers('logs', name)[-500:]}"


def _say(line: str) -> None:
    print(line, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=3_000)
    parser.add_argument("--demo", action="store_true", help="then run the demo, with its nodes in containers")
    asked = parser.parse_args()
    try:
        found = list(run(asked.jobs, with_demo=asked.demo))
    except NoEngine as missing:
        sys.exit(f"container drill: {missing}")
    print("\n".join(found) or "every job ran once; the containers are confined, reap, and stop")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
