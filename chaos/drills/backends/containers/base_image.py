"""Make a root filesystem like that of `python:3.11-slim` out of this machine's own files.

It takes the place of the base image if no registry can be reached. It has a shell, the programs that the Dockerfile runs,
the libraries that they need, and Python under /usr/local with `pip` and nothing else installed. What pip needs to reach
this machine's package index, its settings and certificates, is there too.
"""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Final

_PROGRAMS: Final = ("sh", "install", "chown", "mkdir", "sleep", "groupadd", "useradd")
_LINKS: Final = {"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64"}
_FILES: Final = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\n",
    "etc/group": "root:x:0:\n",
    "etc/shadow": "root:*:19000:0:99999:7:::\n",
    "etc/gshadow": "root:*::\n",
    "etc/login.defs": "UID_MIN 1000\nSYS_UID_MAX 999\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}
_SETTINGS: Final = ("/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt")
_LEFT_OUT: Final = frozenset(("site-packages", "test", "tests", "idlelib", "tkinter", "turtledemo", "lib2to3"))
_GLIBC: Final = tuple(
    f"lib{name}"
    for name in (
        "m.so.6",
        "pthread.so.0",
        "dl.so.2",
        "rt.so.1",
        "util.so.1",
        "resolv.so.2",
        "nss_files.so.2",
        "nss_dns.so.2",
    )
)
"""Parts of the C library that programs load later, or by names of older releases."""
_OF_GCC: Final = ("libgcc_s.so.1", "libstdc++.so.6")
"""Libraries of packages with compiled parts."""
_LIBRARY: Final = re.compile(r"(?:=> |^\s+)(/\S+)", re.MULTILINE)


def write_root(stream: IO[bytes]) -> None:
    """Write the root filesystem to `stream` as a tar archive."""
    with tarfile.open(fileobj=stream, mode="w|", dereference=True) as archive:
        for name, target in _LINKS.items():
            _add_link(archive, name, target)
        for name, text in _FILES.items():
            _add_text(archive, name, text)
        for name in ("tmp", "root", "etc/raftsched", "var/lib", "var/log", "proc", "sys", "dev", "run"):
            _add_directory(archive, name, mode=0o1777 if name == "tmp" else 0o755)
        programs = [Path(_found(name)) for name in _PROGRAMS]
        for path in programs:
            archive.add(path, f"usr/bin/{path.name}")
        for setting in filter(Path.exists, map(Path, _SETTINGS)):
            archive.add(setting, str(setting).lstrip("/"))
        binaries = [*programs, *_add_python(archive)]
        for path in libraries_of(binaries, _OF_GCC):
            # The loader looks into usr/lib; programs name their interpreter by its whole path.
            inside = str(path).lstrip("/") if path.name.startswith("ld-") else f"usr/lib/{path.name}"
            archive.add(path, re.sub(r"^lib", "usr/lib", inside))


def _add_python(archive: tarfile.TarFile) -> Iterator[Path]:
    """Add this interpreter, its library, and pip; return what is a binary."""
    version = f"python3.{sys.version_info.minor}"
    interpreter = Path(sys.base_prefix, "bin", version).resolve()
    archive.add(interpreter, f"usr/local/bin/{version}")
    _add_link(archive, "usr/local/bin/python3", version)
    _add_link(archive, "usr/local/bin/python", version)
    _add_text(archive, "usr/local/bin/pip", '#!/bin/sh\nexec /usr/local/bin/python3 -m pip "$@"\n', mode=0o755)
    yield interpreter
    library = Path(sysconfig.get_path("stdlib"))
    packages = f"usr/local/lib/{version}/site-packages"
    _add_directory(archive, packages)
    for source, inside in ((library, f"usr/local/lib/{version}"), (_pip(), f"{packages}/pip")):
        for path in _files(source):
            archive.add(path, f"{inside}/{path.relative_to(source)}")
            if path.suffix == ".so":
                yield path


def _pip() -> Path:
    """Return the directory of the package pip of this machine."""
    program = "import pip; print(pip.__path__[0])"
    base = Path(sys.base_prefix, "bin", f"python3.{sys.version_info.minor}")
    return Path(subprocess.run([base, "-c", program], capture_output=True, text=True, check=True).stdout.strip())


def _files(directory: Path) -> Iterator[Path]:
    for path in sorted(directory.iterdir()):
        if path.is_dir():
            if path.name not in _LEFT_OUT and not path.name.startswith("config-"):
                yield from _files(path)
        elif path.suffix != ".a" and ".opt-" not in path.name:
            yield path


def libraries_of(binaries: Iterable[Path], others: Iterable[str] = ()) -> list[Path]:
    """Return the shared libraries that the binaries need, the whole C library and its loader, and `others` by name."""
    told = subprocess.run(["ldd", *binaries], capture_output=True, text=True, check=False).stdout
    named = {Path(found) for found in _LIBRARY.findall(told)}
    folders = {path.parent for path in named if path.name.startswith("libc.so")}
    return sorted(
        named | {folder / name for folder in folders for name in (*_GLIBC, *others) if (folder / name).exists()}
    )


def _found(program: str) -> str:
    path = shutil.which(program, path="/usr/sbin:/usr/bin:/sbin:/bin")
    if path is None:
        raise FileNotFoundError(f"{program} is not on this machine: apt-get install coreutils dash passwd")
    return path


def _add_text(archive: tarfile.TarFile, name: str, text: str, *, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(text), mode
    archive.addfile(entry, io.BytesIO(text.encode()))


def _add_link(archive: tarfile.TarFile, name: str, target: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = tarfile.SYMTYPE, target
    archive.addfile(entry)


def _add_directory(archive: tarfile.TarFile, name: str, *, mode: int = 0o755) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = tarfile.DIRTYPE, mode
    archive.addfile(entry)
