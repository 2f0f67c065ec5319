"""Define `raftsched doctor`: examine this machine, and say what to do."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Final

import click
from rich.text import Text

from raftsched.cli.terminal.output import json_option, print_json, reports_errors, say

_STYLES: Final = {"ok": "green", "warn": "yellow", "fail": "bold red", "skip": "dim"}


@click.command("doctor")
@click.option(
    "--config",
    "path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Settings of the node in TOML; RAFTSCHED_… variables count as well.",
)
@json_option
@reports_errors
def doctor_command(path: Path | None, *, as_json: bool) -> None:
    """Examine this machine for a node, and say what to do.

    Settings, certificates, keys, data directory, speed of the disk, ports, other nodes and their clocks, limits, memory.
    Run it as the user of the node, before its first start or beside the running node. It changes nothing.

    Exit code 0 if a node can run here, also with warnings; 1 if not.
    """
    from raftsched.node.doctor.examination import examine

    findings = asyncio.run(examine(path, os.environ))
    failed = any(finding.level == "fail" for finding in findings)
    if as_json:
        print_json({"ok": not failed, "findings": findings})
    else:
        width = max(len(finding.check) for finding in findings)
        for finding in findings:
            level = Text(f"{finding.level:<4}", style=_STYLES[finding.level])
            say(level.append(f"  {finding.check:<{width}}  {finding.text}", style="default"))
            if finding.cure:
                say(f"{'':{width + 8}}→ {finding.cure}")
    sys.exit(1 if failed else 0)
