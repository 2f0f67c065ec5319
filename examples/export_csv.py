"""Export a table to CSV with progress, so that a repeated attempt does no harm: `python examples/export_csv.py`.

The file is written under another name and then renamed: nobody sees half of it, and another attempt of the run replaces
it by the same content. The job runs in a process of its own, which is killed if it is cancelled or takes too long.
"""

from __future__ import annotations

import csv
import os
import sqlite3
import sys
import tempfile
from pathlib import Path
from typing import Any

from raftsched import BlockingClient, Context, Worker

URL = os.environ.get("RAFTSCHED_URL", "http://127.0.0.1:8400")
QUEUE = "example-export"
PAGE_ROWS = 500
worker = Worker(URL, queues=[QUEUE])


@worker.job("export", queue=QUEUE)
def export(ctx: Context, payload: dict[str, Any]) -> dict[str, Any]:
    """Write all rows of `orders` of one day; the snapshot of one transaction, page by page."""
    target = Path(payload["directory"], f"orders-{payload['day']}.csv")
    part = target.with_name(f"{target.name}.{ctx.fencing_token}")
    database = sqlite3.connect(payload["database"], isolation_level=None)
    database.execute("BEGIN")
    (count,) = database.execute("SELECT count(*) FROM orders WHERE day = ?", (payload["day"],)).fetchone()
    rows = database.execute("SELECT id, amount FROM orders WHERE day = ? ORDER BY id", (payload["day"],))
    written = 0
    with part.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("id", "amount"))
        while page := rows.fetchmany(PAGE_ROWS):
            if ctx.cancelled:
                raise InterruptedError("asked to stop")
            writer.writerows(page)
            written += len(page)
            ctx.progress({"rows": written, "of": count})
        file.flush()
        os.fsync(file.fileno())
    part.rename(target)
    ctx.log(f"wrote {written} rows to {target}")
    database.close()
    return {"file": str(target), "rows": written}


def main() -> None:
    """Make a database, and export one day of it."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "shop.sqlite")
        with sqlite3.connect(path) as database:
            database.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, day TEXT, amount INTEGER)")
            database.executemany(
                "INSERT INTO orders (day, amount) VALUES (?, ?)",
                [(f"2027-03-{1 + number % 2:02}", number) for number in range(3_000)],
            )
        payload = {"database": str(path), "directory": directory, "day": "2027-03-01"}
        with BlockingClient(URL) as client:
            job = client.submit("export", payload, queue=QUEUE, timeout_seconds=600)
            result = job.wait(60)
            print("exported", result["rows"], "rows, the last progress was", client.get(job.id).progress)
        print("first lines", Path(result["file"]).read_text().splitlines()[:3])
        print("left behind", sorted(each.name for each in Path(directory).iterdir()))


if __name__ == "__main__":
    import threading

    serving = threading.Thread(target=worker.run)
    serving.start()
    try:
        main()
    finally:
        worker.drain()
        serving.join()
    sys.stdout.flush()
