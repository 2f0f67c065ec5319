"""Structured logs: one event a line, on standard error; JSON for machines, columns for a terminal.

Event names are stable snake_case words; everything variable is a key. Lines of libraries (asyncio, aiohttp and others
log by the standard library) take the same path as ours, as the event `library_log`, and so do warnings and what ends a
thread.

No value that a client sends can forge a line, or act on a terminal: JSON escapes every control character, and in
columns they are escaped here. Every JSON line is valid in the strict sense: no NaN, no lone surrogate.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import MutableMapping
from functools import partial
from math import isfinite
from typing import Any, Final, Literal

import structlog

Format = Literal["json", "console"]
_LEVELS: Final = (logging.CRITICAL, logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG)
_METHODS: Final = {name.lower(): number for name, number in logging.getLevelNamesMapping().items()} | {
    "exception": logging.ERROR
}
_log = structlog.get_logger()


class _Least:
    """The least level that is logged; it can change at any moment."""

    number = logging.INFO


def set_level(level: str) -> None:
    """Log events of this level and above from now on."""
    _Least.number = logging.getLevelNamesMapping()[level.upper()]


def shows_debug() -> bool:
    """Return whether events of the level `debug` are logged: asked before one is made for each request."""
    return _Least.number <= logging.DEBUG


def _drop_lower(_logger: object, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Loggers are cached, so that a level of their own could not change."""
    if _METHODS.get(method, logging.CRITICAL) < _Least.number:
        raise structlog.DropEvent
    return event


def configure(*, level: str = "info", form: Format = "json", node_id: str = "") -> None:
    """Set up logging of this process; every line carries the time in UTC, the level and, if given, the node's id."""
    renderer: list[structlog.types.Processor] = (
        [_as_json] if form == "json" else [_escaped, structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())]
    )
    set_level(level)
    structlog.configure(
        processors=[
            _drop_lower,
            structlog.contextvars.merge_contextvars,
            partial(_add_node, node_id),
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            *renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(level=logging.WARNING, handlers=[_LibraryHandler()], force=True)
    logging.captureWarnings(True)
    threading.excepthook = _log_end_of_thread


class _LibraryHandler(logging.Handler):
    """Passes a record of the standard library's logging on to ours."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            message = record.getMessage()
        except Exception:  # noqa: BLE001  # a format that doesn't fit its arguments: still worth a line
            message = f"{record.msg} {record.args!r}"
        level = next((each for each in _LEVELS if each <= record.levelno), logging.DEBUG)
        _log.log(level, "library_log", logger=record.name, message=message, exc_info=record.exc_info)


def _log_end_of_thread(ended: threading.ExceptHookArgs) -> None:
    if ended.exc_value is not None and not isinstance(ended.exc_value, SystemExit):
        name = ended.thread.name if ended.thread is not None else "unknown"
        _log.error("thread_failed", thread=name, exc_info=ended.exc_value)


def _add_node(node_id: str, _logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Not a context variable: those of the main thread are unknown to others."""
    if node_id:
        event.setdefault("node", node_id)
    return event


# -- rendering --------------------------------------------------------------------------------------------------------


def _as_json(_logger: object, _method: str, event: MutableMapping[str, Any]) -> str:
    """Render one line of strict JSON, in ASCII."""
    return json.dumps(_plain(event), allow_nan=False)


def _plain(value: Any) -> Any:
    """Return a form of the value that JSON can express."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if isfinite(value) else str(value)
    if isinstance(value, dict | MutableMapping):
        return {_plain(str(key)): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(each) for each in value]
    return _plain(repr(value))


def _escaped(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Escape control characters for a terminal; a stack keeps its lines, each set in."""
    return {escape(key): _shown(key, value) for key, value in event.items()}


def _shown(key: str, value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    text = value if isinstance(value, str) else repr(value)
    if key in ("exception", "stack"):
        return "\n".join(f"    {escape(line)}" for line in text.split("\n"))
    return escape(text)


def escape(text: str) -> str:
    """Return `text` with everything escaped that does not print as itself."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
