"""What a bare `pip install raftsched` needs, and what is left to the extra `node`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import raftsched

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
WITHOUT_EXTRA = """
import sys

class Missing:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in FORBIDDEN:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

FORBIDDEN = set(sys.argv.pop(1).split(","))
sys.meta_path.insert(0, Missing())
"""
"""Begins a program in which the modules named first are not installed."""
LOADS_ALL = """
import pkgutil
from importlib import import_module

import raftsched
for name in raftsched.__all__:
    getattr(raftsched, name)
for package in ("client", "worker", "executors"):
    module = import_module(f"raftsched.{package}")
    for found in pkgutil.walk_packages(module.__path__, module.__name__ + "."):
        import_module(found.name)
"""
ASKS_FOR_HELP = """
import importlib.util
importlib.util.find_spec = lambda name: None if name in FORBIDDEN else True
sys.argv[1:] = ["--help"]
from raftsched.__main__ import run
run()
"""


def _names(requirements: list[str]) -> set[str]:
    return {re.split(r"[^\w.-]", line, maxsplit=1)[0].lower() for line in requirements}


@cache
def _modules_of_node() -> set[str]:
    """The top-level modules that only the extra `node` installs."""
    wanted = _names(PROJECT["optional-dependencies"]["node"])
    return {
        module for module, owners in packages_distributions().items() if wanted & {owner.lower() for owner in owners}
    }


def _run_without_node(program: str) -> subprocess.CompletedProcess[str]:
    code = WITHOUT_EXTRA + program
    return subprocess.run(
        [sys.executable, "-c", code, ",".join(sorted(_modules_of_node()))],
        cwd=Path(raftsched.__file__).parents[1],
        env=os.environ,
        capture_output=True,
        text=True,
        check=False,
    )


def test_client_and_worker_load_without_the_extra_node() -> None:
    assert {"click", "croniter", "holidays", "lmdb", "pysyncobj", "rich", "tzdata", "uvloop", "yaml"} <= (
        _modules_of_node()
    )
    assert _names(PROJECT["dependencies"]) == {"aiohttp", "msgspec", "structlog"}
    ran = _run_without_node(LOADS_ALL)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_command_without_the_extra_node_says_in_one_line_how_to_install_it() -> None:
    ran = _run_without_node(ASKS_FOR_HELP)
    assert (ran.returncode, ran.stdout) == (1, "")
    [line] = ran.stderr.splitlines()
    assert "pip install 'raftsched[node]'" in line
