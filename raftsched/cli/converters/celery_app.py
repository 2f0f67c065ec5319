"""Read the schedule of a Celery application, and print it as JSON. It runs in a process of its own.

`python -m raftsched.cli.converters.celery_app APP`: APP is `module:attribute` or a file. The application is imported and
finalized as `celery beat` does it, with all that its modules do when they are imported. What it prints goes to standard
error.
"""

from __future__ import annotations

import ast
import importlib
import json
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Final

_ATTRIBUTES: Final = ("app", "celery", "celery_app")
_CRONTAB_FIELDS: Final = ("minute", "hour", "day_of_month", "month_of_year", "day_of_week")


def main(spec: str) -> None:
    """Print the schedule of the application at `spec`; ends the program with an error text if there is none."""
    output = os.dup(1)
    os.dup2(2, 1)
    module, app = _find(spec)
    app.loader.init_worker()
    app.finalize()
    document = {
        "file": module.__file__ or spec,
        "timezone": _timezone(app),
        "scheduler": str(app.conf.beat_scheduler),
        "starting_deadline_seconds": app.conf.beat_cron_starting_deadline,
        "entries": [_entry(app, str(name), entry, module) for name, entry in app.conf.beat_schedule.items()],
    }
    with os.fdopen(output, "w", encoding="utf-8") as stream:
        json.dump(document, stream)


def _find(spec: str) -> tuple[ModuleType, Any]:
    from celery import Celery

    source, _, attribute = spec.partition(":")
    module = _load(Path(source)) if source.endswith(".py") else importlib.import_module(source)
    for name in [attribute] if attribute else _ATTRIBUTES:
        if isinstance(app := getattr(module, name, None), Celery):
            return module, app
    raise SystemExit(
        f"{spec}: no Celery application in {attribute or ', '.join(_ATTRIBUTES)}; name it as {source}:NAME"
    )


def _load(path: Path) -> ModuleType:
    """Import a file under its own name, beside its neighbours."""
    if not path.is_file():
        raise SystemExit(f"{path}: there is no such file")
    if (path.parent / "__init__.py").exists():
        raise SystemExit(f"{path}: it is a part of a package; name it as package.module:app")
    sys.path.insert(0, str(path.parent.resolve()))
    return importlib.import_module(path.stem)


def _timezone(app: Any) -> str | None:
    """Return the zone of crontabs, None if it is that of the machine."""
    if app.conf.timezone:
        return str(app.conf.timezone)
    return "UTC" if app.conf.enable_utc else None


def _entry(app: Any, name: str, entry: dict[str, Any], module: ModuleType) -> dict[str, Any]:
    task = app.tasks.get(entry["task"])
    found = {
        "name": name,
        "line": _line_of(name, module),
        "task": entry["task"],
        "is_known": task is not None,
        "acks_late": bool(getattr(task, "acks_late", False)),
        "schedule": _schedule(app, entry),
        "options": {key: repr(value) for key, value in (entry.get("options") or {}).items()},
    }
    payload = {"args": list(entry.get("args") or ()), "kwargs": dict(entry.get("kwargs") or {})}
    try:
        json.dumps(payload, allow_nan=False)
    except (TypeError, ValueError) as error:
        return found | {"fault": f"its arguments are not JSON: {error}"}
    return found | {"payload": payload}


def _schedule(app: Any, entry: dict[str, Any]) -> dict[str, Any]:
    from celery.schedules import crontab, maybe_schedule, schedule

    timing = maybe_schedule(entry["schedule"], bool(entry.get("relative", False)), app=app)
    shown = {"shown": repr(timing)}
    if getattr(timing, "nowfun", None) is not None:
        return shown | {"fault": "it has a clock of its own (nowfun)"}
    if type(timing) is crontab:
        return shown | {"crontab": {name: sorted(getattr(timing, name)) for name in _CRONTAB_FIELDS}}
    if type(timing) is schedule:
        return shown | {"seconds": timing.run_every.total_seconds(), "is_relative": bool(timing.relative)}
    return shown | {"fault": f"a schedule of type {type(timing).__name__} has no counterpart"}


def _line_of(name: str, module: ModuleType) -> int | None:
    """Return the one line of the module on which the name is written."""
    if module.__file__ is None:
        return None
    tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    lines = {node.lineno for node in ast.walk(tree) if isinstance(node, ast.Constant) and node.value == name}
    return lines.pop() if len(lines) == 1 else None


if __name__ == "__main__":
    main(sys.argv[1])
