"""The dependencies of an image are pinned by hashes, and are those that pyproject asks for."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
_PIN = re.compile(r"^(?P<name>[A-Za-z0-9_.-]+)==(?P<version>[^ ;\\]+)(?P<rest>(?:.*\\\n)*.*)", re.MULTILINE)


def test_lock_pins_what_is_asked_for_with_hashes() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = map(Requirement, [*project["dependencies"], *project["optional-dependencies"]["node"]])
    found = {pin["name"].lower(): pin for pin in _PIN.finditer((ROOT / "configs/requirements.lock").read_text())}
    wrong = [
        str(requirement)
        for requirement in asked
        if requirement.name not in found or found[requirement.name]["version"] not in requirement.specifier
    ]
    assert not wrong, "`make lock` has not been run since they changed"
    assert not [name for name, pin in found.items() if "--hash=sha256:" not in pin["rest"]]
