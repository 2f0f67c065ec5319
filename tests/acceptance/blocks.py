"""The code blocks of the README and the documentation, and how they run as they are printed.

A page is one program after the other in one directory of its own. A `python` block is a program; one with a title is a
file of that name, as every titled block is. A `console` block holds commands after `$ ` and lines of their output, of
which each must appear. `<!-- not run: REASON -->` on the line before says why a block can't run. What a page leaves in
the background ends with it. A block with `curl` needs that program. The address of the documentation's cluster is
replaced by that of the cluster that runs.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = (
    "README.md",
    "CONTRIBUTING.md",
    *sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs").glob("*.md")),
)
HAS_CURL: Final = shutil.which("curl") is not None
URL: Final = "http://127.0.0.1:8400"
_BLOCK: Final = re.compile(
    r"(?:^<!-- not run: (?P<reason>.+) -->\n)?^```(?P<info>.*)\n(?P<text>(?:.*\n)*?)^```$", re.MULTILINE
)
_INFO: Final = re.compile(r"(?P<language>\w+)(?: title=\"(?P<title>[\w.]+)\")?")
_SHOWN: Final = {"text", "mermaid"}
"""Languages that nothing runs or reads."""
_SECONDS_MAX: Final = 60


@dataclass(frozen=True, slots=True)
class Block:
    """A block of code, and where it is printed."""

    place: str
    language: str
    title: str
    text: str
    reason: str
    """Why it is not run; "" if it is."""

    @property
    def commands(self) -> list[str]:
        return [line.removeprefix("$ ") for line in self.text.splitlines() if line.startswith("$ ")]

    @property
    def output(self) -> list[str]:
        return [line for line in self.text.splitlines() if not line.startswith("$ ")]


def blocks_of(page: str) -> Iterator[Block]:
    """Yield the blocks of a page in order; raises `ValueError` for a fence without a known form."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = list(_BLOCK.finditer(text))
    if len(re.findall(r"^```", text, re.MULTILINE)) != 2 * len(found):
        raise ValueError(f"{page}: a fence is not closed")
    for block in found:
        info = _INFO.fullmatch(block["info"])
        line = text.count("\n", 0, block.start("text"))
        if info is None:
            raise ValueError(f"{page}:{line}: a block needs a language, not {block['info']!r}")
        yield Block(f"{page}:{line}", info["language"], info["title"] or "", block["text"], block["reason"] or "")


def run_page(page: str, directory: Path, url: str) -> list[str]:
    """Run all blocks of a page in `directory` and return what failed, a text for each block."""
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "PYTHONUNBUFFERED": "1",
        "RAFTSCHED_URL": url,
    }
    groups: list[int] = []
    try:
        return [fault for block in blocks_of(page) if (fault := _run(block, directory, url, environment, groups))]
    finally:
        for group in groups:
            _end(group)


def _run(block: Block, directory: Path, url: str, environment: dict[str, str], groups: list[int]) -> str:
    text = block.text.replace(URL, url)
    if block.title:
        (directory / block.title).write_text(text, encoding="utf-8")
    match block.language:
        case _ if block.reason or block.language in _SHOWN or ("curl " in text and not HAS_CURL):
            return ""
        case "toml":
            tomllib.loads(text)
        case "yaml":
            yaml.safe_load(text)
        case "python" if block.title:
            compile(text, block.place, "exec")
        case "python":
            return _fault(block, [sys.executable, "-c", text], directory, environment, groups)
        case "console":
            script = "\n".join(["set -eu", *block.commands]).replace(URL, url)
            return _fault(block, ["bash", "-c", script], directory, environment, groups)
        case other:
            return f"{block.place}: nobody knows how to run {other}"
    return ""


def _fault(block: Block, command: list[str], directory: Path, environment: dict[str, str], groups: list[int]) -> str:
    """Run a program; return what it did wrong."""
    output = directory / f"output-{len(groups)}"
    with output.open("wb") as file:
        process = subprocess.Popen(
            command, cwd=directory, env=environment, stdin=subprocess.DEVNULL, stdout=file, stderr=file, process_group=0
        )
    groups.append(process.pid)
    try:
        code = process.wait(_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        code = None
    said = output.read_text(encoding="utf-8", errors="replace")
    lines = said.splitlines()
    missing = [] if block.language == "python" else [line for line in block.output if line not in lines]
    if code == 0 and not missing:
        return ""
    return f"{block.place}: exit code {code}; output without {missing}; it said:\n{said}"


def _end(group: int) -> None:
    """End a process group, whether anything of it is left or not."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return
