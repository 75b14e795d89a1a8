"""The console: one page on which people see how the service stands, and hear it.

It is put together once, at the start, of the files of ``page/``: one answer, so that replicas of
two versions can't mix their parts. Its policy allows just these scripts and styles, by their
digests, and requests to this gateway. It holds no data and no key: what it shows, it asks for as
any client does.
"""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

CONTENT_TYPE: Final = "text/html; charset=utf-8"
SCRIPTS: Final = ("service.js", "sound.js", "view.js", "speak.js", "poll.js")
"""One module in this order."""


class Console:
    """The page and its headers."""

    def __init__(self) -> None:
        style = _read("console.css")
        script = "\n".join(_read(name) for name in SCRIPTS)
        page = _read("console.html")
        self._body = page.replace("/* style */", style).replace("/* script */", script).encode()
        self._headers = {
            "content-type": CONTENT_TYPE,
            "content-security-policy": _policy(script=script, style=style),
            "cache-control": "no-cache",
            "cross-origin-opener-policy": "same-origin",
            "referrer-policy": "no-referrer",
            "x-content-type-options": "nosniff",
        }

    async def page(self, _: Request) -> Response:
        return Response(self._body, headers=self._headers)


def _policy(*, script: str, style: str) -> str:
    rules = {
        "default-src": "'none'",
        "script-src": _source(script),
        "style-src": _source(style),
        "connect-src": "'self'",
        "media-src": "blob:",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in rules.items())


def _source(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def _read(name: str) -> str:
    return (files("gateway") / "page" / name).read_text(encoding="utf-8")
