"""Define the option for the keys of data directories that commands read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from raftsched.encryption.cipher import Cipher

keys_file_option = click.option(
    "--keys-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    envvar="RAFTSCHED_KEYS_FILE",
    help="Keys file of the nodes, if their data is encrypted. [env: RAFTSCHED_KEYS_FILE]",
)


def cipher_of(keys_file: Path | None) -> Cipher:
    """Return the cipher for the data of nodes that have this keys file; raises `Invalid` naming the line at fault."""
    from raftsched.encryption.cipher import NO_KEYS, Cipher
    from raftsched.encryption.keys import read_keys

    return NO_KEYS if keys_file is None else Cipher(read_keys(keys_file), source=keys_file)
