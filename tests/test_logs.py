"""Every line of the log is one event that was logged here, whatever a client says and whoever logs."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

FORGED = '\n{"event":"node_stopped","level":"info"}\r\x1b[2J\x1b]0;owned\x07\x85\u2028\u202e\ud800"\\'
"""A line of its own in any reader's eyes, terminal commands, a reversal of the text, and half a character."""
LOGGING = """
import logging, sys, threading, warnings
import structlog
from raftsched import logs

logs.configure(form=sys.argv[1], node_id="n1")
forged = eval(sys.argv[2])
log = structlog.get_logger()
log.info("ours", field=forged, inner={"list": [forged, float("nan"), float("inf"), b"bytes", object]})
log.info("named", **{forged: 1})
logging.getLogger("aiohttp.access").warning(forged)
logging.getLogger("aiohttp.server").error("Error handling request from %s", forged)
logging.getLogger("asyncio").warning("wrong %s %s", forged)
logging.getLogger("pysyncobj").log(35, "odd level %s", forged)
logging.getLogger("quiet").info("not shown")
try:
    raise ValueError(forged)
except ValueError:
    logging.getLogger("asyncio").exception("Task exception was never retrieved")
    log.exception("ours_failed")
warnings.warn(forged)


def fail():
    raise OSError(forged)


thread = threading.Thread(target=fail, name=forged)
thread.start()
thread.join()
"""
EVENTS = ["ours", "named", *["library_log"] * 5, "ours_failed", "library_log", "thread_failed"]


def logged(form: str) -> bytes:
    ended = subprocess.run(
        [sys.executable, "-c", LOGGING, form, ascii(FORGED)], capture_output=True, check=True, timeout=60
    )
    return ended.stderr


def no_constants(name: str) -> Any:
    raise AssertionError(f"{name} is not JSON")


def test_every_line_is_strict_json_of_one_event_whoever_logs() -> None:
    lines = logged("json").decode("ascii").split("\n")
    assert lines.pop() == ""
    events = [json.loads(line, parse_constant=no_constants) for line in lines]
    assert [event["event"] for event in events] == EVENTS
    assert {event["node"] for event in events} == {"n1"}
    assert all({"level", "timestamp"} <= event.keys() for event in events)
    assert not any("\ud800" in value for event in events for value in event.values() if isinstance(value, str))
    libraries = [event for event in events if event["event"] == "library_log"]
    assert [event["logger"] for event in libraries] == [
        *("aiohttp.access", "aiohttp.server", "asyncio", "pysyncobj", "asyncio", "py.warnings")
    ]
    assert [event["level"] for event in libraries[:4]] == ["warning", "error", "warning", "warning"]
    assert libraries[0]["message"].startswith('\n{"event":"node_stopped"')


def test_on_a_terminal_nothing_a_client_says_begins_a_line_or_reaches_the_terminal() -> None:
    text = logged("console").decode()
    assert not set(text) & set("\r\x1b\x07\x85\u2028\u202e")
    begun = [line for line in text.split("\n") if line and not line.startswith(("20", " "))]
    assert begun == []


@pytest.mark.parametrize("form", ["json", "console"])
def test_long_lines_of_many_threads_stay_whole(form: str) -> None:
    program = """
import logging, sys, threading, structlog
from raftsched import logs
logs.configure(form=sys.argv[1])
def say(n):
    for _ in range(30):
        logging.getLogger("a").warning("x" * 20_000)
        structlog.get_logger().info("ours", text="y" * 20_000)
threads = [threading.Thread(target=say, args=(n,)) for n in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
"""
    ended = subprocess.run([sys.executable, "-c", program, form], capture_output=True, check=True, timeout=60)
    lines = ended.stderr.decode().splitlines()
    assert len(lines) == 240
    assert all(line.count("x" * 20_000) + line.count("y" * 20_000) == 1 for line in lines)
    if form == "json":
        assert all(json.loads(line) for line in lines)
