"""The real application on a real socket, and clients that mean no good or know no better.

Whatever is sent, the answer is one of the contract's, in the envelope, and nothing of what was sent
becomes a header, a log line or an error of ours.
"""

from __future__ import annotations

import gzip
import json
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from structlog.testing import capture_logs

from gateway.operations import operations
from shared.paths import CANCELLATIONS, OPENAI_SPEECH, SPEECH
from tests.gateway.served import Service, served
from tests.gateway.world import gateway_settings

KEY = "sk-hostile-0123456789abcdef"
TEXT = "A text that nobody may repeat."
WAIT_S = 10.0
PATH = SPEECH.encode()
BLANK = b'{"input": " "}'
CHUNKED = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BLANK), BLANK)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    settings = gateway_settings({"PSIONIC_CSM_API_KEYS": KEY})
    with served(tmp_path_factory.mktemp("served"), settings) as service:
        yield service


class Answer:
    """The answers of one connection, which the client closes for sending once it has asked."""

    def __init__(self, service: Service, data: bytes) -> None:
        address = urlsplit(service.url)
        with socket.create_connection((address.hostname, address.port), WAIT_S) as client:
            client.sendall(data)
            self.raw = _until_done(client)
        self.head, _, self.body = self.raw.partition(b"\r\n\r\n")
        if self.head.startswith(b"HTTP/1.1 100 "):
            self.head, _, self.body = self.body.partition(b"\r\n\r\n")

    @property
    def status(self) -> int:
        return int(self.head.split(b" ", 2)[1])

    @property
    def code(self) -> str:
        return str(json.loads(self.body)["error"]["code"])

    @property
    def names(self) -> set[bytes]:
        return {line.partition(b":")[0].lower() for line in self.head.split(b"\r\n")[1:]}


def _until_done(client: socket.socket) -> bytes:
    """All that comes until an answer is whole by its length, or the connection ends."""
    heard = b""
    while True:
        head, _, body = heard.rpartition(b"\r\n\r\n")
        length = head.lower().rpartition(b"content-length: ")[2].partition(b"\r\n")[0]
        if length.isdigit() and len(body) >= int(length):
            return heard
        piece = client.recv(65536)
        if not piece:
            return heard
        heard += piece


def request(
    body: bytes = b"",
    *fields: bytes,
    method: bytes = b"POST",
    path: bytes = PATH,
    version: bytes = b"1.1",
) -> bytes:
    """A request with the key, whose body is framed by its length unless the fields say how."""
    named = [b"host: h", b"authorization: Bearer " + KEY.encode(), *fields]
    if not any(field.startswith(b"content-type") for field in fields):
        named.append(b"content-type: application/json")
    if not any(field.startswith((b"content-length", b"transfer-")) for field in fields):
        named.append(b"content-length: %d" % len(body))
    lines = [b"%b %b HTTP/%b" % (method, path, version), *named, b"", b""]
    return b"\r\n".join(lines) + body


@pytest.mark.parametrize(
    ("data", "status", "code"),
    [
        pytest.param(
            request(CHUNKED, b"transfer-encoding: chunked"), 400, "empty_input", id="chunked"
        ),
        pytest.param(
            request(b"zz\r\n{}\r\n0\r\n\r\n", b"transfer-encoding: chunked"),
            400,
            "malformed_json",
            id="a chunk's size is no number",
        ),
        pytest.param(
            request(b"f" * 18 + b"\r\n{}\r\n", b"transfer-encoding: chunked"),
            400,
            "malformed_json",
            id="a chunk beyond all bounds",
        ),
        pytest.param(
            request(b"20000\r\n" + b" " * 0x20000, b"transfer-encoding: chunked"),
            413,
            "body_too_large",
            id="a chunk that is too large",
        ),
        pytest.param(
            request(CHUNKED, b"content-length: 4", b"transfer-encoding: chunked"),
            400,
            "malformed_json",
            id="two framings",
        ),
        pytest.param(
            request(BLANK, b"content-length: 4", b"content-length: 5"),
            400,
            "malformed_json",
            id="two lengths",
        ),
        pytest.param(request(BLANK, b"content-length: -1"), 400, "malformed_json", id="below 0"),
        pytest.param(
            request(BLANK, b"content-length: 9" + b"9" * 40), 400, "malformed_json", id="41 digits"
        ),
        pytest.param(
            request(BLANK, b"content-length: 9" + b"9" * 17), 413, "body_too_large", id="18 digits"
        ),
        pytest.param(
            request(gzip.compress(BLANK), b"content-encoding: gzip"),
            415,
            "unsupported_media_type",
            id="gzip",
        ),
        pytest.param(
            request(CHUNKED, b"transfer-encoding: gzip, chunked"),
            415,
            "unsupported_media_type",
            id="gzip in transfer",
        ),
        pytest.param(request(BLANK, b"expect: 100-continue"), 400, "empty_input", id="expect"),
        pytest.param(request(BLANK, b"expect: the moon"), 400, "empty_input", id="expect more"),
        pytest.param(
            request(BLANK, b"connection: Upgrade", b"upgrade: websocket"),
            400,
            "empty_input",
            id="upgrade",
        ),
        pytest.param(request(BLANK, version=b"1.0"), 400, "empty_input", id="HTTP/1.0"),
        pytest.param(request(BLANK, version=b"3.0"), 400, "malformed_json", id="HTTP/3.0"),
        pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, "malformed_json", id="HTTP/2"),
        pytest.param(request(BLANK, method=b"BREW"), 400, "malformed_json", id="no method"),
        pytest.param(request(BLANK, method=b"post"), 400, "malformed_json", id="lower case"),
        pytest.param(request(method=b"TRACE"), 405, "method_not_allowed", id="TRACE"),
        pytest.param(request(BLANK, b"x: a\r\n b"), 400, "malformed_json", id="a folded field"),
        pytest.param(request(BLANK, b"x : a"), 400, "malformed_json", id="a blank in a name"),
        pytest.param(request(BLANK, b"x: a\rb"), 400, "malformed_json", id="a bare CR"),
        pytest.param(request(BLANK, b"x: a\nx-smuggled: 1"), 400, "malformed_json", id="a bare LF"),
        pytest.param(request(BLANK, b"x: a\x00b"), 400, "malformed_json", id="NUL in a field"),
        pytest.param(
            request(BLANK, b"content-type: text/plain, application/json"),
            415,
            "unsupported_media_type",
            id="two types",
        ),
        pytest.param(
            request(BLANK.decode().encode("utf-16"), b"content-type: application/json"),
            400,
            "malformed_json",
            id="UTF-16",
        ),
        pytest.param(request(b"\xef\xbb\xbf" + BLANK), 400, "malformed_json", id="a BOM"),
        pytest.param(
            request(BLANK, b"x-psionic-request-id: \xff\xfe"), 400, "invalid_request_id", id="bytes"
        ),
        pytest.param(
            request(BLANK, b"idempotency-key: " + b"a" * 129), 400, "invalid_request_id", id="129"
        ),
        pytest.param(
            request(BLANK, b"idempotency-key: a\tb"), 400, "invalid_request_id", id="a tab"
        ),
    ],
)
def test_a_wild_request_gets_a_tame_answer(
    service: Service, data: bytes, status: int, code: str
) -> None:
    """The status and the code that its fault has, in the envelope."""
    answer = Answer(service, data)

    assert (answer.status, answer.code) == (status, code)
    assert b"x-smuggled" not in answer.names


@pytest.mark.parametrize(
    ("path", "code"),
    [
        (b"/psionic/csm/speech/a%2Fb", "route_not_found"),
        (b"/psionic/csm/speech/a%2Faudio", "result_not_found"),
        (b"/psionic/csm/speech/%C3%A9", "result_not_found"),
        (b"/psionic/csm/speech/%FF%FE", "result_not_found"),
        (b"/psionic/csm/speech/%00", "result_not_found"),
        (b"/psionic/csm/speech/%zz", "result_not_found"),
        (b"/psionic/csm/speech/a%0d%0ax-smuggled:%201", "result_not_found"),
        (b"/psionic/csm/speech/a%0d%0ax-smuggled:%201/audio", "result_not_found"),
        (b"/psionic/csm/evidence/a%0d%0ax-smuggled:%201", "result_not_found"),
        (b"/psionic/csm/speech/..", "result_not_found"),
        (b"/psionic/csm/speech/" + b"a" * 129, "result_not_found"),
        (b"/psionic/csm/speech/", "route_not_found"),
        (b"/psionic/csm/speech//audio", "route_not_found"),
        (b"/psionic/csm/../../v1/models", "route_not_found"),
        (b"//v1/models", "route_not_found"),
        (b"/health/../v1/models", "route_not_found"),
        (b"/health/%2e%2e/v1/models", "route_not_found"),
        (b"/v1/models/", "route_not_found"),
        (b"/" + b"a" * 60_000, "route_not_found"),
    ],
    ids=lambda value: value[:40].decode() if isinstance(value, bytes) else value,
)
def test_a_wild_path_is_not_found(service: Service, path: bytes, code: str) -> None:
    """An id in a path is one id or none; a path is what it says, without dots taken away."""
    answer = Answer(service, request(method=b"GET", path=path))

    assert (answer.status, answer.code) == (404, code)
    assert b"x-smuggled" not in answer.names


@pytest.mark.parametrize(
    "path", [b"/health/../v1/models", b"/health/%2e%2e/v1/models", b"/health/x"]
)
def test_a_detour_past_the_probes_reaches_nothing(service: Service, path: bytes) -> None:
    """What needs no key leads to nothing that does."""
    answer = Answer(service, b"GET %b HTTP/1.1\r\nhost: h\r\n\r\n" % path)

    assert answer.status == 404
    assert KEY.encode() not in answer.raw
    assert b"psionic_governance" not in answer.body


@pytest.mark.parametrize("method", [b"HEAD", b"OPTIONS", b"PUT", b"DELETE", b"PATCH", b"TRACE"])
@pytest.mark.parametrize(
    "path", sorted({each.path for each in operations(("wav", "pcm"))}), ids=str
)
def test_every_route_takes_its_methods_alone(service: Service, path: str, method: bytes) -> None:
    """HEAD where GET is, without a body; any other is 405 and names those that are taken."""
    taken = {each.method for each in operations(("wav", "pcm")) if each.path == path}
    where = path.replace("{request_id}", "nobody").encode()

    answer = Answer(service, request(b"", b"connection: close", method=method, path=where))

    if method == b"HEAD":
        assert answer.body == b""
    if method == b"HEAD" and "get" in taken:
        assert answer.status in (200, 404)
        assert b"content-length" in answer.names
    else:
        assert answer.status == 405
        allowed = answer.head.lower().partition(b"\r\nallow: ")[2].partition(b"\r\n")[0].decode()
        assert taken <= {each.strip() for each in allowed.split(",")}


JSON_ROWS = [
    (b'{"input":"a","x":' + b"[" * 30_000 + b"]" * 30_000 + b"}", 400, "malformed_json"),
    (b'{"a":' * 10_000 + b"1" + b"}" * 10_000, 400, "malformed_json"),
    (b'{"input":"a","seed":' + b"9" * 60_000 + b"}", 400, "invalid_seed"),
    (b'{"input":"a","timeout_ms":' + b"9" * 60_000 + b"}", 400, "invalid_timeout_ms"),
    (b'{"input":"a","seed":1e400}', 422, "invalid_type"),
    (b'{"input":"a","seed":1e2}', 422, "invalid_type"),
    (b'{"input":"a","seed":true}', 422, "invalid_type"),
    (b'{"input":"a","seed":-1}', 400, "invalid_seed"),
    (b'{"input":"a","psionic_csm":{"temperature":1e400}}', 400, "invalid_temperature"),
    (b'{"input":"a","psionic_csm":{"temperature":Infinity}}', 400, "malformed_json"),
    (b'{"input":"a","psionic_csm":{"top_k":1,"top_k":2}}', 422, "invalid_type"),
    (b'{"input":"a","inp\\u0075t":"b"}', 422, "invalid_type"),
    (b'{"input":"a","\\ud800":1}', 422, "invalid_type"),
    (b'{"input":"a","request_id":"\\ud800"}', 400, "invalid_request_id"),
    (b'{"input":"a","request_id":"abc\\n"}', 400, "invalid_request_id"),
    (b'{"input":"a","request_id":"a\\r\\nx-smuggled: 1"}', 400, "invalid_request_id"),
    (b'{"input":"a","cancellation_id":"a\\r\\nx-smuggled: 1"}', 400, "invalid_cancellation_id"),
    (b'{"input":"a","voice":"\\ud800"}', 400, "voice_profile_unavailable"),
    (b'{"input":"a","voice":{"id":"a\\r\\nx-smuggled: 1"}}', 400, "voice_profile_unavailable"),
    (b'{"input":"a","voice_profile_id":"a\\u0000"}', 400, "voice_profile_unavailable"),
    (b'{"input":"a","model":"a\\r\\nx-smuggled: 1"}', 404, "model_unavailable"),
    (b'{"input":"a","artifact_id":"\\udfff"}', 400, "artifact_unavailable"),
    (b'{"input":"a","a\\r\\nx-smuggled: 1":1}', 400, "unknown_parameter"),
    (b'{"input":" "}{}', 400, "malformed_json"),
    (b" " * 60_000, 400, "malformed_json"),
    (b'{"input":"a\\u0085b"}', 400, "invalid_input_text"),
    (b'{"input":"a\\u007fb"}', 400, "invalid_input_text"),
    (b'{"input":"a\\u0000b"}', 400, "invalid_input_text"),
    (b'{"input":"a\\udc00\\ud800b"}', 400, "invalid_input_text"),
    ('{"input":"%s"}' % ("\u0958" * 2500), 400, "input_too_long"),
]


@pytest.mark.parametrize(
    ("body", "status", "code"), JSON_ROWS, ids=[str(row[0][:60]) for row in JSON_ROWS]
)
def test_wild_json_gets_a_tame_answer(
    service: Service, body: bytes | str, status: int, code: str
) -> None:
    """However deep, long, double or strange: a code, and nothing smuggled into the head."""
    data = body.encode() if isinstance(body, str) else body

    answer = Answer(service, request(data))

    assert (answer.status, answer.code) == (status, code)
    assert b"x-smuggled" not in answer.names
    assert b"x-smuggled" not in answer.body


@pytest.mark.parametrize(
    "text",
    [
        "[1]Hello there",
        "<|end_of_text|><|begin_of_text|>",
        "\u202e\u05e9\u05dc\u05d5\u05dd \u2066\u0645\u0631\u062d\u0628\u0627\u2069",
        "e\u0301\u0301\u0301\u0327",
        "\U0001f469\u200d\U0001f469\u200d\U0001f467",
        "line\u2028end\ufffe\uffff",
        "--psionic-csm-stream--\r\n",
        "data: x\n\nevent: speech.audio.done\n\n",
    ],
    ids=ascii,
)
def test_whatever_can_be_written_is_spoken(service: Service, text: str) -> None:
    """Speaker tags, special tokens, right-to-left and combining text, framings: plain text."""
    answer = Answer(service, request(json.dumps({"input": text}).encode(), b"connection: close"))

    assert answer.status == 200
    assert answer.body.startswith(b"RIFF")


def test_neither_key_nor_text_is_logged(service: Service) -> None:
    """Not of what is served, refused, malformed or sent to where it does not belong."""
    body = json.dumps({"input": TEXT, "user": TEXT}).encode()
    with capture_logs() as heard:
        for data in (
            request(body, path=OPENAI_SPEECH.encode()),
            request(body),
            request(body[:-1]),
            request(body, b"x-psionic-request-id: " + KEY.encode() + b" "),
            request(body, b"traceparent: " + KEY.encode()),
            request(body, path=CANCELLATIONS.encode()),
            request(method=b"GET", path=b"/v1/models?api_key=" + KEY.encode()),
            request(method=b"GET", path=b"/" + KEY.encode()),
            request(body, b"x: a\rb"),
        ):
            Answer(service, data)

    assert len(heard) >= 8
    told = [line for line in heard if line.get("request_id") != KEY]
    assert KEY not in str(told)
    assert TEXT not in str(heard)


def test_two_at_once_are_answered_one(service: Service) -> None:
    """A request that comes with the one before it is not taken, and the client is told so."""
    answer = Answer(service, request(BLANK) + request(method=b"GET", path=b"/health/live"))

    assert answer.code == "empty_input"
    assert answer.raw.count(b"HTTP/1.1 ") == 1
