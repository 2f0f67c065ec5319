"""Decide which programs a worker may run.

A program is found once: by its absolute path, or by the worker's own PATH. Links in its directory are followed, the
link that has its name is not: of two names for one file, as `psql` and `pg_dump` on Debian or everything in busybox, each
has to be allowed. The result is what is compared and what is run.

A variable that makes a program run other code would undo the list, so a job may not set one on a worker with a list.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from raftsched.errors import Invalid
from raftsched.executors.shell.errors import CommandRefused

_CODE_PREFIXES = ("LD_", "DYLD_", "BASH_FUNC_", "GIT_", "RUBY", "PERL", "PYTHON", "NODE_", "JAVA_", "JDK_")
_CODE_NAMES = frozenset((
    "PATH", "HOME", "XDG_CONFIG_HOME", "ENV", "BASH_ENV", "SHELLOPTS", "IFS",
    "PS4", "GCONV_PATH", "GLIBC_TUNABLES", "LUA_PATH", "LUA_CPATH", "CLASSPATH",
    "EDITOR", "VISUAL", "PAGER", "TAR_OPTIONS", "RSYNC_RSH", "PSQLRC",
))  # fmt: skip
"""Variables that name or hold code for the dynamic loader, a shell, an interpreter or a common tool."""


class Programs:
    """The programs that may run: those at `paths`, or any if it is None."""

    def __init__(self, paths: Iterable[str] | None) -> None:
        """Raise `Invalid` for a path that is not absolute, or at which there is no program."""
        self._allowed = None if paths is None else frozenset(_checked(path) for path in paths)
        if self._allowed is not None and not self._allowed:
            raise Invalid("--allow: name the programs that may run, or give --allow-any", field="allow")

    def find(self, name: str) -> str:
        """Return the path of the program that `name` means; raises `CommandRefused` if there is none, or if it may not
        run.
        """
        if "/" in name and not name.startswith("/"):
            raise CommandRefused(f"argv: {name!r} is a relative path; give an absolute one, or a name to find by PATH")
        found = shutil.which(name)
        if found is None or not found.startswith("/"):  # PATH may have relative directories
            raise CommandRefused(f"argv: this worker has no program {name!r}")
        path = _location(found)
        if self._allowed is not None and path not in self._allowed:
            raise CommandRefused(f"argv: this worker may not run {path!r}; start one with --allow {path}")
        return path

    def check_env(self, names: Iterable[str]) -> None:
        """Raise `CommandRefused` for a variable that could make an allowed program run other code."""
        if self._allowed is None:
            return
        for name in names:
            if name in _CODE_NAMES or name.startswith(_CODE_PREFIXES):
                text = f"env: a worker with --allow takes no {name} from a job: it can make a program run other code"
                raise CommandRefused(f"{text}; set it for the worker, with --env {name}")


def _checked(path: str) -> str:
    if not path.startswith("/"):
        raise Invalid(f"--allow: {path!r} is not an absolute path", field="allow")
    if shutil.which(path) is None:
        raise Invalid(f"--allow: there is no program {path!r}", field="allow")
    return _location(path)


def _location(path: str) -> str:
    """Return `path` with the links of its directory followed."""
    directory, name = os.path.split(path)
    return str(Path(directory).resolve() / name)
