"""The HTTP/1.1 parser, for a server that never switches to another protocol.

A client may offer to (``Upgrade: h2c``, which some send with every request). httptools then takes
the head for the end of the request, and the body is lost. Such an offer is to be left aside (RFC
9110, 7.8): the request is read again without it.
"""

from __future__ import annotations

from typing import Final, Protocol

import httptools

OFFERS: Final = (b"upgrade", b"http2-settings")
"""Fields that belong to an offer, as ``connection`` names them, too."""


class Listener(Protocol):
    """What the parser calls, besides httptools' own callbacks."""

    url: bytes
    headers: list[tuple[bytes, bytes]]

    @property
    def is_deaf(self) -> bool:
        """Whether nothing more is taken from this connection."""


class PlainParser:
    """httptools' request parser over one connection, without its upgrades.

    While ``should_upgrade`` holds, the request that was heard is about to be heard again.
    """

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._parser = self._fresh()

    def feed_data(self, data: bytes) -> None:
        """Raises httptools.HttpParserError for what is no HTTP, and for CONNECT."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            if self._listener.is_deaf:
                return
            head = self._plain_head()
            self._parser = self._fresh()
            self.feed_data(head + data[offer.args[0] :])

    def get_http_version(self) -> str:
        return str(self._parser.get_http_version())

    def get_method(self) -> bytes:
        return bytes(self._parser.get_method())

    def should_upgrade(self) -> bool:
        return bool(self._parser.should_upgrade())

    def should_keep_alive(self) -> bool:
        return bool(self._parser.should_keep_alive())

    def _fresh(self) -> httptools.HttpRequestParser:
        parser = httptools.HttpRequestParser(self._listener)
        # What comes after the last request of a connection is no error of that request.
        parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return parser

    def _plain_head(self) -> bytes:
        method = self.get_method()
        if method == b"CONNECT":
            raise httptools.HttpParserError("this is no proxy")
        lines = [b"%b %b HTTP/%b" % (method, self._listener.url, self.get_http_version().encode())]
        for name, value in self._listener.headers:
            if name == b"connection":
                tokens = (token.strip() for token in value.split(b","))
                value = b", ".join(token for token in tokens if token.lower() not in OFFERS)
            if name not in OFFERS and not (name == b"connection" and not value):
                lines.append(b"%b: %b" % (name, value))
        return b"\r\n".join([*lines, b"", b""])
