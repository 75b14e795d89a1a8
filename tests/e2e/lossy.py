"""A way to a gateway on which answers get lost after they were made."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

HOP = {"connection", "transfer-encoding", "host", "content-length"}


class Lossy:
    """``lose`` says how many answers get lost from now on; ``asked`` counts the requests."""

    def __init__(self, upstream: str) -> None:
        self.lose = 0
        self.asked = 0
        self._upstream = urlsplit(upstream).netloc
        way = self

        class Post(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                way.asked += 1
                sent = {k: v for k, v in self.headers.items() if k.lower() not in HOP}
                with closing(HTTPConnection(way._upstream, timeout=30)) as connection:
                    connection.request("POST", self.path, body, sent)
                    answer = connection.getresponse()
                    data = answer.read()
                self.close_connection = True
                if way.lose > 0:
                    way.lose -= 1
                    return
                self.send_response_only(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in HOP:
                        self.send_header(name, value)
                self.send_header("content-length", str(len(data)))
                self.send_header("connection", "close")
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Post)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextmanager
def lossy(upstream: str) -> Iterator[Lossy]:
    way = Lossy(upstream)
    try:
        yield way
    finally:
        way.close()
