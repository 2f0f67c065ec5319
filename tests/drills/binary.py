"""Run the demo by the single-file program in a root directory that holds nothing but the C library and zlib.

    python -m tests.drills.binary build/raftsched

It needs the right to mount: that of root, or of users to make namespaces of their own.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from chaos.drills.backends.containers.base_image import libraries_of

_NAMESPACES: Final = (
    *("unshare", "--mount", "--pid", "--fork", "--kill-child"),
    *(() if os.geteuid() == 0 else ("--user", "--map-root-user")),
)
_ENTER: Final = """
set -e
mount -t proc proc "$0/proc"
mount --rbind /dev "$0/dev"
cd "$0"
exec chroot "$0" /raftsched "$@"
"""
_PLACES: Final = ("proc", "dev", "tmp", "etc")


def make_root(root: Path, program: Path) -> list[str]:
    """Make a root directory that holds the program and the libraries which it is linked with; return their names."""
    for name in _PLACES:
        (root / name).mkdir()
    shutil.copy2(program, root / "raftsched")
    libraries = libraries_of([program])
    for library in libraries:
        inside = root / str(library).lstrip("/")
        inside.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(library, inside)
    return [library.name for library in libraries]


def run_in(root: Path, *arguments: str) -> int:
    """Run the program with these arguments and no environment; return its exit code."""
    return subprocess.run(
        [*_NAMESPACES, "sh", "-c", _ENTER, root, *arguments], env={"PATH": os.environ["PATH"]}, check=False
    ).returncode


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=Path)
    with tempfile.TemporaryDirectory(prefix="raftsched-binary-") as name:
        root = Path(name)
        print("beside the program:", *make_root(root, parser.parse_args().program), flush=True)
        sys.exit(run_in(root, "demo"))


if __name__ == "__main__":
    main()
