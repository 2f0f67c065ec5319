"""The acceptance cases under tests/cases: copies of what was seen in the world, read by the tests that carry them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

_DIRECTORY = Path(__file__).parents[1] / "cases"


def case(case_id: str) -> dict[str, Any]:
    """Return the case with this id."""
    [path] = _DIRECTORY.glob(f"{case_id}-*.yaml")
    found: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found


def inputs(case_id: str) -> list[tuple[str, str]]:
    """Return the inputs of a case, each with the behaviour that is right."""
    return [(str(text), str(expected)) for text, expected in case(case_id)["inputs"]]
