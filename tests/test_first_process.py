"""The program as the first process of a container (case N02), in a process namespace of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

NEW_PID_NAMESPACE = (
    "unshare", "--pid", "--fork", "--mount-proc", "--kill-child",
    *(() if os.geteuid() == 0 else ("--user", "--map-root-user")),
)  # fmt: skip
HEAD = """
import os, subprocess, sys, time
from raftsched.first_process import leave_first_process
assert os.getpid() == 1
leave_first_process()
assert os.getpid() != 1
"""
ORPHANS = """
codes = {subprocess.run(["sh", "-c", "(sleep 0.01 &); (true &); exit 7"]).returncode for _ in range(30)}
def is_process(name): return name.isdigit() and int(name) not in (1, os.getpid())
while left := [name for name in os.listdir("/proc") if is_process(name)]:
    time.sleep(0.01)
print(codes)
sys.exit(5)
"""
WAIT = """
print("loading", flush=True)
time.sleep(600)
"""


@contextmanager
def first_process(program: str) -> Iterator[subprocess.Popen[str]]:
    command = [*NEW_PID_NAMESPACE, sys.executable, "-c", HEAD + program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as unshare:
        try:
            yield unshare
        finally:
            unshare.kill()


def test_first_process_reaps_orphans_and_ends_as_the_program_does() -> None:
    with first_process(ORPHANS) as unshare:
        printed, _ = unshare.communicate(timeout=60)
        assert (printed, unshare.returncode) == ("{7}\n", 5), "a program's own children are left to it"


def test_first_process_heeds_a_signal_that_comes_before_the_program_handles_it() -> None:
    with first_process(WAIT) as unshare:
        assert unshare.stdout is not None
        assert unshare.stdout.readline() == "loading\n"
        (first,) = psutil.Process(unshare.pid).children()
        first.terminate()
        assert unshare.wait(timeout=60) == 128 + signal.SIGTERM
