"""The README's worker and commands, run as they stand there."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

from tests.acceptance.conftest import StartCluster, run_cli

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
URL = "http://127.0.0.1:8400"


def _code(start: str) -> str:
    """The Python block that begins with `start`."""
    blocks: list[str] = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    return next(block for block in blocks if block.startswith(start))


def _tour() -> tuple[str, str]:
    """The worker's program, and all lines of the client, one after the other."""
    section = README.split("## A tour\n")[1].split("\n## ")[0]
    worker, *blocks = re.findall(r"```python\n(.*?)```", section, flags=re.DOTALL)
    return worker, "\n".join(blocks)


def test_every_line_of_the_tour_runs_as_it_stands(start_cluster: StartCluster, tmp_path: Path) -> None:
    base = start_cluster().nodes[0].api
    worker_code, lines = _tour()
    program = tmp_path / "worker.py"
    program.write_text(worker_code.replace(URL, base))
    body = "".join(f"        {line}\n" for line in f"{lines}\n{_AFTERWARDS}".splitlines())
    script = (
        "import asyncio\nfrom raftsched import Client, JobFailed, Workflow\n"
        f"async def main():\n    async with Client({base!r}) as client:\n{body}\nasyncio.run(main())\n"
    )
    with (tmp_path / "worker.log").open("wb") as output:
        worker = subprocess.Popen([sys.executable, "-u", str(program)], stdout=output, stderr=output)
    try:
        ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
        assert ran.returncode == 0, ran.stderr
        facts = json.loads(ran.stdout.splitlines()[-1])
    finally:
        worker.terminate()
        worker.wait(timeout=30)
    assert facts == {
        "preview": 3,
        "trigger": True,
        "backfilled": 3,
        "alarm": "skipped",
        "load": "completed",
        "why": ["queue_paused"],
        "given_up": ["attempts_exhausted", "rejected"],
        "requeued": 2,
        "again": True,
        "log": ["attempt 1 of report"],
        "audited": True,
    }


_AFTERWARDS = """
import json
tasks = {node.task: node.status for node in (await night.graph()).nodes}
print(json.dumps({
    "preview": len(outlook.firings),
    "trigger": bool(run.job_id),
    "backfilled": plan.run_count,
    "alarm": tasks.get("alarm"),
    "load": tasks.get("load"),
    "why": [reason.code for reason in why.reasons],
    "given_up": sorted(job.failure_reason for job in given_up),
    "requeued": requeued.matched,
    "again": again.id != soon.id,
    "log": [line.text for line in lines],
    "audited": any(entry.action == "schedule.pause" for entry in trail),
}))
"""


def test_the_ten_line_worker_the_client_and_the_command_work_together(
    start_cluster: StartCluster, tmp_path: Path
) -> None:
    base = start_cluster().nodes[0].api
    program = tmp_path / "worker.py"
    program.write_text(_code("from raftsched import Worker").replace(URL, base))
    log = tmp_path / "worker.log"
    with log.open("wb") as output:
        worker = subprocess.Popen([sys.executable, "-u", str(program)], stdout=output, stderr=output)
    try:
        client = _code("from raftsched import Client").replace(URL, base).replace("delay_seconds=30", "delay_seconds=1")
        imports, body = client.split("\n\n", 1)
        indented = "".join(f"    {line}\n" for line in body.splitlines())
        script = f"{imports}\nimport asyncio\nasync def main():\n{indented}\nasyncio.run(main())\n"
        ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
        assert (ran.returncode, ran.stdout) == (0, "{'sent': True}\n"), ran.stderr
        command = re.search(r"`raftsched (submit .*?)`", README)
        assert command is not None
        submitted = run_cli(*shlex.split(command[1]), RAFTSCHED_URL=base)
        assert (submitted.returncode, submitted.stdout) == (0, '{"sent":true}\n'), submitted.stderr
        assert log.read_text().count("to a@example.org attempt 1") == 2
    finally:
        worker.terminate()
        worker.wait(timeout=30)
