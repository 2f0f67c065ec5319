"""Ask `systemd-analyze calendar` for the next times of calendar events."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from datetime import UTC, datetime

PROGRAM = shutil.which("systemd-analyze")
_TIME = re.compile(r"(?:Next elapse|Iter\. #\d+): \w{3} (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:\.\d+)? UTC")


def next_times(event: str, after: datetime, count: int) -> list[datetime] | None:
    """Return the next times of an event; None if systemd rejects it."""
    assert PROGRAM is not None
    base = after.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    ran = subprocess.run(
        [PROGRAM, "calendar", f"--iterations={count}", f"--base-time={base}", event],
        env=os.environ | {"TZ": "UTC", "LC_ALL": "C"},
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode:
        return None
    return [datetime.fromisoformat(text).replace(tzinfo=UTC) for text in _TIME.findall(ran.stdout)]
