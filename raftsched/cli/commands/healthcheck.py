"""Define `raftsched healthcheck` for the help texts; `raftsched.__main__` runs it without loading this."""

from __future__ import annotations

import click

from raftsched import healthcheck


@click.command("healthcheck")
@click.argument("address", metavar="[HOST:PORT|URL]", default="")
def healthcheck_command(address: str) -> None:
    """Check the node in this container; exit code 1 if it fails.

    At https://HOST:PORT its certificate is verified by the authorities in RAFTSCHED_CA_FILE.

    Without HOST:PORT the node is found by its process, and its address by its settings. If no node runs, as in a
    worker's container, there is nothing to check, and the exit code is 0.
    """
    healthcheck.run([address] if address else [])
