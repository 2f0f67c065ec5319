"""Structured logs: one event a line, on standard error; JSON for machines, columns for a terminal.

Event names are stable snake_case words; all that varies is a key. Control characters are escaped by the renderers, so
that no value a client sends can forge a line.
"""

from __future__ import annotations

import logging
import sys
from typing import Literal

import structlog

Format = Literal["json", "console"]


def configure(*, level: str = "info", form: Format = "json", node_id: str = "") -> None:
    """Set up logging of this process; every line carries the time in UTC, the level and, where given, the node's id."""
    renderer: structlog.types.Processor = (
        structlog.processors.JSONRenderer(sort_keys=False)
        if form == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(
        level=logging.WARNING, stream=sys.stderr, format='{"level":"%(levelname)s","event":"%(name)s: %(message)s"}'
    )
    if node_id:
        structlog.contextvars.bind_contextvars(node=node_id)
