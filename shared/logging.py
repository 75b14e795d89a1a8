"""Structured logs: one JSON object a line, or a readable line on a terminal.

Nothing that callers say or hear may be logged: no input text, audio, prompt or key. Events carry
ids, codes, counts and times.
"""

from __future__ import annotations

import logging
import sys
from typing import Final

import structlog

LEADING: Final = ("timestamp", "level", "role", "event")


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
    handler = logging.StreamHandler(sys.stdout)
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
