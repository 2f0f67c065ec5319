"""The dependencies of an image are pinned by hashes, and are those that pyproject asks for."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
_PIN = re.compile(r"^(?P<name>[A-Za-z0-9_.-]+)==(?P<version>[^ ;\\]+)(?P<rest>(?:.*\\\n)*.*)", re.MULTILINE)


def test_locks_pin_what_is_asked_for_with_hashes() -> None:
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = document["project"]
    locks = {
        "requirements.lock": [*project["dependencies"], *project["optional-dependencies"]["node"]],
        "build.lock": document["build-system"]["requires"],
    }
    wrong = [fault for name, asked in locks.items() for fault in _faults(name, map(Requirement, asked))]
    assert not wrong, "`make lock` has not been run since they changed"


def _faults(name: str, asked: Iterable[Requirement]) -> Iterator[str]:
    found = {pin["name"].lower(): pin for pin in _PIN.finditer((ROOT / "configs" / name).read_text())}
    for requirement in asked:
        if requirement.name not in found or found[requirement.name]["version"] not in requirement.specifier:
            yield f"{name}: {requirement}"
    yield from (f"{name}: {each} has no hash" for each, pin in found.items() if "--hash=sha256:" not in pin["rest"])
