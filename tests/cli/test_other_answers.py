"""Documents that are no gateway's of this version: told in a line, whatever command meets them."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, ClassVar

import pytest

from cli import main
from cli.exits import NOT_GENUINE

COMMANDS = {
    "voices": ["voices"],
    "cancel": ["cancel", "--request-id", "a"],
    "outcome": ["outcome", "a", "accepted"],
    "evidence": ["evidence", "a"],
}
DOCUMENTS: list[dict[str, Any]] = [
    {},
    {"voice_profiles": None, "hits": None, "business_outcome": 1, "request": 1, "terminal": []},
    {"voice_profiles": [{}], "hits": [{}], "business_outcome": {}, "request": {}, "terminal": {}},
]


class Other(BaseHTTPRequestHandler):
    """Gives one document, whatever it is asked."""

    document: ClassVar[dict[str, Any]] = {}

    def do_GET(self) -> None:
        data = json.dumps(self.document).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_POST = do_GET

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("document", DOCUMENTS)
@pytest.mark.parametrize("command", COMMANDS)
def test_an_answer_of_another_shape_is_not_genuine(
    command: str, document: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """One line says what is missing, with the exit code of an answer that breaks the contract."""
    handler = type("Handler", (Other,), {"document": document})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        code = main.run([*COMMANDS[command], "--url", f"http://127.0.0.1:{server.server_port}"])
        server.shutdown()

    assert code == NOT_GENUINE
    assert "not as the contract has it" in capsys.readouterr().err
