"""The exit codes of commands that wait for a job."""

from __future__ import annotations

import re
from pathlib import Path

from raftsched.cli.terminal.exit_codes import EXIT_CODES
from raftsched.wire.common import FINISHED
from tests.cli.runner import Cli

PAGE = (Path(__file__).parents[3] / "docs" / "cli.md").read_text(encoding="utf-8")


def test_documentation_names_the_exit_code_of_every_status_in_which_a_job_has_ended() -> None:
    rows = dict(re.findall(r"^\| (\d+) \| (.+) \|$", PAGE, flags=re.MULTILINE))
    assert EXIT_CODES.keys() == FINISHED
    for status, code in EXIT_CODES.items():
        assert status.replace("_", " ") in rows[str(code)]


async def test_exit_code_tells_a_job_that_was_skipped(cli: Cli) -> None:
    parent = await cli.json("submit", "a", "--delay", "1h")
    child = await cli.json("submit", "b", "--depends-on", parent["id"])
    await cli.ok("cancel", parent["id"])
    assert (await cli.run("tail", child["id"])).exit_code == 5
