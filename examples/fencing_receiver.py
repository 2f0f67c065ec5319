"""Make an effect happen once although attempts may repeat: `python examples/fencing_receiver.py`.

The receiver is a database. In one transaction with the effect it rejects tokens smaller than the largest that it has seen
for the account, and stores the run id with the result. The first stops a late attempt, the second a repetition.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3

from raftsched import Client, Context, Worker

URL = os.environ.get("RAFTSCHED_URL", "http://127.0.0.1:8400")
SCHEMA = """
CREATE TABLE accounts (name TEXT PRIMARY KEY, balance INTEGER NOT NULL, token_max INTEGER NOT NULL);
CREATE TABLE effects (run_id TEXT PRIMARY KEY, balance INTEGER NOT NULL);
INSERT INTO accounts VALUES ('alice', 100, 0);
"""


class StaleToken(Exception):
    """A later attempt has been here already."""


class Receiver:
    """The system in which the effect happens."""

    def __init__(self) -> None:
        self._database = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._database.executescript(SCHEMA)

    def add(self, account: str, amount: int, *, run_id: str, token: int) -> int:
        """Add `amount` once for each run and return the balance after it; raises `StaleToken` and changes nothing."""
        self._database.execute("BEGIN IMMEDIATE")
        with self._database:
            query = "SELECT balance, token_max FROM accounts WHERE name = ?"
            balance, token_max = self._database.execute(query, (account,)).fetchone()
            if token < token_max:
                raise StaleToken(f"{token} is smaller than {token_max}")
            done = self._database.execute("SELECT balance FROM effects WHERE run_id = ?", (run_id,)).fetchone()
            after = int(done[0]) if done else int(balance) + amount
            self._database.execute(
                "UPDATE accounts SET balance = ?, token_max = ? WHERE name = ?", (after, token, account)
            )
            self._database.execute("INSERT OR IGNORE INTO effects VALUES (?, ?)", (run_id, after))
        return after


receiver = Receiver()
worker = Worker(URL, queues=["example-transfer"])
seen: list[Context] = []


@worker.job("transfer", queue="example-transfer", max_attempts=2)
async def transfer(ctx: Context, payload: dict[str, int]) -> int:
    """Have the effect, then lose the answer at the first attempt."""
    seen.append(ctx)
    balance = receiver.add("alice", payload["amount"], run_id=ctx.run_id, token=ctx.fencing_token)
    if ctx.attempt_number == 1:
        raise ConnectionError("the answer of the receiver was lost")
    return balance


async def main() -> None:
    """Run the worker and submit one job to it."""
    serving = asyncio.create_task(worker.serve())
    async with Client(URL) as client:
        policy = {"backoff": "fixed", "base_seconds": 0.1, "jitter": 0}
        job = await client.submit("transfer", {"amount": 5}, queue="example-transfer", retry_policy=policy)
        print("balance after two attempts", await job.wait())
    worker.drain()
    await serving
    first, second = seen
    print("tokens rise", first.fencing_token < second.fencing_token, "and the run stays", first.run_id == second.run_id)
    try:
        receiver.add("alice", 5, run_id=first.run_id, token=first.fencing_token)
    except StaleToken as error:
        print("a late first attempt is rejected:", str(error) != "")


asyncio.run(main())
