"""The README, the documentation and the examples, run as they are printed, against one cluster."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from raftsched.cli.local.children import lifeline
from raftsched.cli.local.cluster import LocalCluster
from tests.acceptance.blocks import HAS_CURL, PAGES, ROOT, blocks_of, run_page
from tests.acceptance.conftest import SharedCluster

EXAMPLES = sorted((ROOT / "examples").iterdir())
PROGRAMS = [path for path in EXAMPLES if path.suffix in {".py", ".sh"} and path.name != "worker.py"]
READ_FIRST = {"README.md", "docs/quickstart.md"}
needs_curl = pytest.mark.skipif(not HAS_CURL, reason="no curl here")
PAGES_THAT_RUN = [
    page
    for page in PAGES
    if any(block.language in {"python", "console"} and not block.reason for block in blocks_of(page))
]


@pytest.fixture(scope="module")
def worker(shared_cluster: SharedCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The worker of the examples, for all jobs that the pages submit."""
    cluster = shared_cluster()
    with (tmp_path_factory.mktemp("worker") / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, str(ROOT / "examples" / "worker.py")],
            env=os.environ | {"RAFTSCHED_URL": cluster.urls[0]},
            stdin=lifeline(),
            stdout=log,
            stderr=log,
        )
    # Until it is known, `explain` says besides everything else that no worker takes the job.
    cluster.wait_until(
        lambda: bool(cluster.nodes[0].get("/api/v1/workers", timeout=10)["workers"]), what="the worker to be listed"
    )
    yield
    process.terminate()
    assert process.wait(timeout=30) == 0


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=pytest.mark.essential if page in READ_FIRST else ()) for page in PAGES_THAT_RUN]
)
def test_every_block_of_a_page_runs_as_it_is_printed(page: str, cluster: LocalCluster, tmp_path: Path) -> None:
    assert "\n".join(run_page(page, tmp_path, cluster.urls[0])) == ""


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize(
    "program",
    [pytest.param(path, marks=needs_curl if path.suffix == ".sh" else (), id=path.name) for path in PROGRAMS],
)
def test_example_runs_and_says_what_it_did(program: Path, cluster: LocalCluster, tmp_path: Path) -> None:
    shell = shutil.which("bash")
    assert shell is not None
    ran = subprocess.run(
        [sys.executable if program.suffix == ".py" else shell, str(program)],
        cwd=tmp_path,
        env=os.environ | {"RAFTSCHED_URL": cluster.urls[0]},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stdout
    assert ran.stdout
