"""Receive the requests of HTTP jobs and have each effect once: `python examples/http_receiver.py`.

The receiver is any web service with a database. In one transaction with the effect it stores the run id with the answer,
so a repeated attempt gets the same answer; and it rejects a fencing token that is smaller than the largest one it has seen
for the account, so an attempt that was given up long ago changes nothing.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from contextlib import closing

from aiohttp import ClientSession, web

from raftsched import Client, Worker
from raftsched.executors.http.executor import HttpExecutor, HttpSettings
from raftsched.executors.http.targets import Targets

URL = os.environ.get("RAFTSCHED_URL", "http://127.0.0.1:8400")
QUEUE = "example-http"
SCHEMA = """
CREATE TABLE accounts (name TEXT PRIMARY KEY, balance INTEGER NOT NULL, token_max INTEGER NOT NULL);
CREATE TABLE effects (run_id TEXT PRIMARY KEY, balance INTEGER NOT NULL);
INSERT INTO accounts VALUES ('alice', 100, 0);
"""


class Receiver:
    """The web service in which the effect happens."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        database.executescript(SCHEMA)
        self.attempts: list[int] = []

    async def pay(self, request: web.Request) -> web.Response:
        """Add an amount to an account; the answer to the first attempt is lost after its effect."""
        run_id = request.headers["Idempotency-Key"]
        token = int(request.headers["Raftsched-Fencing-Token"])
        amount = (await request.json())["amount"]
        balance = self._add("alice", amount, run_id=run_id, token=token)
        if balance is None:
            return web.json_response({"error": "a later attempt has been here"}, status=409)
        self.attempts.append(int(request.headers["Raftsched-Attempt"]))
        if len(self.attempts) == 1:
            return web.json_response({"error": "the connection to the database broke"}, status=503)
        return web.json_response({"balance": balance})

    def _add(self, account: str, amount: int, *, run_id: str, token: int) -> int | None:
        """Add `amount` once for each run and return the balance after it; None if the token is too old."""
        self._database.execute("BEGIN IMMEDIATE")
        with self._database:
            query = "SELECT balance, token_max FROM accounts WHERE name = ?"
            balance, token_max = self._database.execute(query, (account,)).fetchone()
            if token < token_max:
                return None
            done = self._database.execute("SELECT balance FROM effects WHERE run_id = ?", (run_id,)).fetchone()
            after = int(done[0]) if done else int(balance) + amount
            self._database.execute(
                "UPDATE accounts SET balance = ?, token_max = ? WHERE name = ?", (after, token, account)
            )
            self._database.execute("INSERT OR IGNORE INTO effects VALUES (?, ?)", (run_id, after))
        return after


async def main() -> None:
    """Run the receiver and an executor, and submit one job."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
        receiver = Receiver(database)
        app = web.Application()
        app.router.add_post("/pay", receiver.pay)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        target = f"http://127.0.0.1:{runner.addresses[0][1]}/pay"

        worker = Worker(URL, queues=[QUEUE])
        executor = HttpExecutor(HttpSettings(targets=Targets(allow=["127.0.0.1"])))  # the receiver is on this machine
        worker.execute("http", executor, on_stop=executor.close)
        serving = asyncio.create_task(worker.serve())
        async with Client(URL) as client:
            policy = {"backoff": "fixed", "base_seconds": 0.1, "jitter": 0}
            job = await client.http(target, body={"amount": 5}, queue=QUEUE, retry_policy=policy)
            result = await job.wait()
        worker.drain()
        await serving

        print("attempts", receiver.attempts, "and the answer", result["status"], result["body"])
        headers = {"Idempotency-Key": "another", "Raftsched-Fencing-Token": "1", "Raftsched-Attempt": "1"}
        async with ClientSession() as session, session.post(target, json={"amount": 5}, headers=headers) as reply:
            print("a late attempt is rejected:", reply.status == 409)
        await runner.cleanup()


asyncio.run(main())
