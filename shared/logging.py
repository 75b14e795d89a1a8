"""Structured logs: one JSON object a line, or a readable line on a terminal.

Nothing that callers say or hear may be logged: no input text, audio, prompt or key. Events carry
ids, codes, counts and times.
"""

from __future__ import annotations

import atexit
import logging
import sys
from contextlib import suppress
from typing import Final, TextIO

import structlog

from shared.output import hold, make_whole, settle

LEADING: Final = ("timestamp", "level", "role", "event")


class Lines(logging.StreamHandler[TextIO]):
    """The log's lines, whole ones. On a disk that is full, or where nobody reads them any more,
    they are missed and nothing else happens; standard error says so once.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._missed = 0

    def emit(self, record: logging.LogRecord) -> None:
        missed_before = self._missed
        super().emit(record)
        if missed_before and self._missed == missed_before:
            self._missed = 0
            structlog.get_logger().warning("log_resumed", lines_missed_at_most=missed_before)

    def handleError(self, record: logging.LogRecord) -> None:
        error = sys.exception()
        if not isinstance(error, OSError):
            super().handleError(record)
            return
        if not self._missed:
            with suppress(OSError):
                sys.stderr.write(f"the log can't be written: {error.strerror}\n")
        self._missed += 1


def configure_logging(role: str, level: str = "info", *, pretty: bool = False) -> None:
    """Route structlog and the standard library (RQ, uvicorn) to stdout, labelled with ``role``."""

    def add_role(
        _: object, __: str, event: structlog.typing.EventDict
    ) -> structlog.typing.EventDict:
        event["role"] = role
        return event

    shared_steps: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        add_role,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]

    def lead(_: object, __: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        """When, how bad, who and what come first, for those who read the lines themselves."""
        return {**{name: event[name] for name in LEADING if name in event}, **event}

    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer(colors=sys.stdout.isatty())
        if pretty
        else structlog.processors.JSONRenderer()
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared_steps,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            lead,
            renderer,
        ],
    )
    hold()
    make_whole()
    atexit.register(settle)
    handler = Lines(sys.stdout)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    for noisy in ("rq", "rq.worker", "httpx", "httpcore"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    structlog.configure(
        processors=[*shared_steps, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(level.upper())),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
