"""Back up a directory every night and keep the last seven copies: `python examples/nightly_backup.py`.

The command is a shell job; for a database it would be `pg_dump -Fc shop` in place of `tar`. It needs no code at the
worker, only `raftsched worker --shell --allow /bin/sh`, which this program starts beside it. To show the retention it
runs the nights of ten days at once.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from raftsched import BlockingClient, shell_job

URL = os.environ.get("RAFTSCHED_URL", "http://127.0.0.1:8400")
NAME = "example-nightly-backup"
SCRIPT = """
set -eu
copy="$BACKUPS/shop-$RAFTSCHED_SCHEDULED_AT.tar.gz"
tar -cz -C "$DATA" . > "$copy.part"
mv "$copy.part" "$copy"
ls "$BACKUPS"/shop-*.tar.gz | sort -r | tail -n +8 | while read -r old; do
    rm -- "$old"
    echo "removed $old"
done
echo "wrote $copy"
"""
"""A copy is named by its night, so another attempt replaces it; it has its name only when it is complete."""


def main() -> None:
    """Save the schedule, run ten nights, and print which copies are left."""
    with tempfile.TemporaryDirectory() as directory:
        data, backups = Path(directory, "data"), Path(directory, "backups")
        for each in (data, backups):
            each.mkdir()
        (data / "orders.csv").write_text("1,paid\n")
        arguments = ["--shell", "--allow", "/bin/sh", "--queue", NAME, "--log-level", "error", "--until-stdin-ends"]
        worker = subprocess.Popen([sys.executable, "-m", "raftsched", "worker", *arguments], stdin=subprocess.PIPE)  # noqa: S603  # this program's own arguments
        with worker, BlockingClient(URL) as client:
            back_up(client, data, backups)
            worker.terminate()
        print("kept", *sorted(copy.name for copy in backups.iterdir()), sep="\n  ")


def back_up(client: BlockingClient, data: Path, backups: Path) -> None:
    """Run the nights of ten days, each after the one before."""
    job = shell_job(
        ["sh", "-c", SCRIPT],
        env={"DATA": str(data), "BACKUPS": str(backups)},
        queue=NAME,
        max_attempts=3,
        timeout_seconds=3600,
    )
    client.schedules.save(NAME, job, cron="30 2 * * *", timezone="Europe/Berlin", overlap="skip", misfire="run_once")
    client.schedules.backfill(NAME, "2026-03-01T00:00:00Z", "2026-03-11T00:00:00Z")
    for decision in client.schedules.firings(NAME):
        if decision.job_id is not None:
            result = client.job(decision.job_id).wait()
            print(decision.instant.isoformat(), result["stdout_tail"].strip().replace("\n", ", "))
    client.schedules.delete(NAME)


if __name__ == "__main__":
    main()
