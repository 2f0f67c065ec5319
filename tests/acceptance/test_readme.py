"""The README's worker and commands, run as they stand there."""

from __future__ import annotations

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
        assert "completed" in submitted.stdout
        assert log.read_text().count("to a@example.org attempt 1") == 2
    finally:
        worker.terminate()
        worker.wait(timeout=30)
