"""The contract's page against a live stack: its examples as typed, its names as served."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from shared.digests import sha256_hex
from tests.conftest import wait_until
from tests.e2e.pages import Example, examples
from tests.e2e.stacks import CommandLine, Up, demo_cache

__all__ = ["demo_cache"]

pytestmark = pytest.mark.e2e

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "contract.md"
SPEECH = "/psionic/csm/speech"
BODY = {"input": "Hi.", "max_audio_length_ms": 240}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory, demo_cache: Path) -> Iterator[str]:
    """One stack for the whole page."""
    line = CommandLine(tmp_path_factory.mktemp("contract"), demo_cache)
    line.environment["PSIONIC_CSM_RESULT_TTL_MS"] = "600000"  # however slowly the page is typed
    with Up(line, "--lanes", "2") as up:
        yield up.url


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for the whole page: later examples read what earlier ones wrote."""
    return tmp_path_factory.mktemp("page")


def missing(example: Example) -> str | None:
    """The program that an example needs and that is not here."""
    if example.language == "sh" and shutil.which("curl") is None:
        return "curl"
    if "import openai" in example.text and importlib.util.find_spec("openai") is None:
        return "openai"
    return None


@pytest.mark.parametrize(
    "example", list(examples(PAGE)), ids=lambda example: f"line-{example.line}"
)
def test_an_example_prints_what_the_page_says(example: Example, url: str, folder: Path) -> None:
    """Whoever types what the page shows sees what the page shows."""
    if (program := missing(example)) is not None:
        if os.environ.get("CI"):
            pytest.fail(f"{program} is needed")
        pytest.skip(f"{program} is not installed")
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("PSIONIC_CSM_")
    }
    example.run(folder, {**environment, "URL": url, "NO_PROXY": "127.0.0.1"})


def test_the_page_has_examples() -> None:
    """The runner finds them: a changed mark would skip them all in silence."""
    found = list(examples(PAGE))

    assert len(found) >= 10
    assert {example.language for example in found} == {"sh", "python"}


def named() -> set[str]:
    """Everything that the page quotes outside its examples."""
    text = re.sub(r"^```.*?^```$", "", PAGE.read_text(encoding="utf-8"), flags=re.M | re.S)
    return set(re.findall(r"`([^`]+)`", text))


def test_every_header_and_key_that_is_served_is_on_the_page(url: str) -> None:
    """Headers of an answer, keys of events, results and load: none is a surprise."""
    with httpx.Client(base_url=url, trust_env=False, timeout=60) as client:
        whole = client.post(SPEECH, json={**BODY, "request_id": "keys", "cancellation_id": "turn"})
        streamed = client.post(
            SPEECH, json={**BODY, "stream": True, "stream_format": "jsonl_base64"}
        )
        events = [json.loads(line) for line in streamed.text.splitlines()]
        result = client.get(f"{SPEECH}/keys").json()
        client.post("/psionic/csm/evidence/keys/outcome", json={"outcome": "accepted"})
        evidence = client.get("/psionic/csm/evidence/keys").json()
        load = client.get("/psionic/csm/load").json()
        refusal = client.post(SPEECH, json={}).json()["error"]

    headers = {name for name in (*whole.headers, *streamed.headers) if name.startswith("x-")}
    streams = {"x-psionic-streaming-mode", "x-psionic-stream-window-frames"}
    parts = ("request", "governance", "business_outcome")
    told = (evidence, *(evidence[part] for part in parts))
    documents = (
        *events,
        result,
        result["terminal"],
        *told,
        load,
        *load["artifacts"],
        *load["gateways"],
    )
    keys = {key for document in documents for key in document}

    assert headers - named() - streams == set()
    assert all(f"`{name}:" in PAGE.read_text(encoding="utf-8") for name in streams)
    assert keys - named() == set()
    assert {f'"{key}"' for key in refusal} <= set(
        re.findall(r'"\w+"', PAGE.read_text(encoding="utf-8"))
    )


def test_the_terminal_s_table_holds_its_keys_and_no_others(url: str) -> None:
    """Each key with its type, and null only where the page allows it."""
    text = PAGE.read_text(encoding="utf-8")
    section = text[text.index("### Terminal") : text.index("### Formats")]
    rows = [
        [cell.strip() for cell in line.strip("|").split(" | ")]
        for line in section.splitlines()
        if line.startswith("| `")
    ]
    types = {key: row[1] for row in rows for key in re.findall(r"`(\w+)`", row[0])}
    kinds: dict[str, Any] = {"string": str, "integer": int, "boolean": bool}
    body = {**BODY, "stream": True, "stream_format": "jsonl_base64"}
    reply = httpx.post(url + SPEECH, json=body, trust_env=False, timeout=60)

    terminal = json.loads(reply.text.splitlines()[-1])

    assert terminal.keys() - {"event", "chunk_transport"} == types.keys()
    for key, kind in types.items():
        assert terminal[key] is None or type(terminal[key]) is kinds[kind], key


LONG = {"input": "This goes on long enough to be interrupted.", "max_audio_length_ms": 12_000}
JSONL = {"stream": True, "stream_format": "jsonl_base64"}


@pytest.fixture
def client(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url, trust_env=False, timeout=60) as client:
        yield client


def table_keys(first: str, last: str) -> set[str]:
    """The names in the first cells of the tables of a part of the page."""
    text = PAGE.read_text(encoding="utf-8")
    part = text[text.index(first) : text.index(last)]
    cells = [line.split("|")[1] for line in part.splitlines() if line.startswith("| `")]
    return {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}


def test_a_late_stream_says_so_once_and_goes_on(client: httpx.Client) -> None:
    """The fallback event has the page's keys, comes before the audio, and ends nothing."""
    body = {**BODY, **JSONL, "voice_turn_budget_ms": 1}

    events = [json.loads(line) for line in client.post(SPEECH, json=body).text.splitlines()]

    kinds = [event["event"] for event in events]
    assert kinds == ["start", "fallback", *["audio"] * (len(events) - 3), "terminal"]
    assert events[1].keys() == {"event", "reason", "elapsed_ms", "rollback_target"}
    assert events[1]["reason"] == "voice_turn_budget_exceeded"


def test_a_cancelled_stream_ends_with_an_error_event(client: httpx.Client) -> None:
    """It carries the envelope's object and the terminal's keys; the outcome stays with the id."""
    body = {**LONG, **JSONL, "request_id": "stopped"}
    events = []
    with client.stream("POST", SPEECH, json=body) as reply:
        for line in reply.iter_lines():
            events.append(json.loads(line))
            if events[-1]["event"] == "audio" and events[-1]["chunk_index"] == 0:
                hit = httpx.post(
                    f"{client.base_url}/psionic/csm/cancellations",
                    json={"request_id": "stopped"},
                    trust_env=False,
                )

    last = events[-1]
    assert hit.json() == {
        "hits": [{"request_id": "stopped", "was": "running"}],
        "remembered": False,
    }
    assert last["event"] == "error"
    assert last.keys() == {"event", "error"} | table_keys("### Terminal", "### Formats")
    assert (last["error"]["code"], last["finish_reason"]) == ("cancelled", "cancelled")
    again = client.post(SPEECH, json={**LONG, "request_id": "stopped"})
    assert (again.status_code, again.headers["x-psionic-csm-replayed"]) == (409, "true")
    assert client.get(f"{SPEECH}/stopped/audio").status_code == 404


def test_a_request_that_nobody_hears_any_more_is_forgotten(client: httpx.Client) -> None:
    """When the last caller leaves, the result is 404 and the id is free for another text."""
    with client.stream("POST", SPEECH, json={**LONG, **JSONL, "request_id": "left"}) as reply:
        lines = reply.iter_lines()  # held: without it httpx would hang up
        next(lines)
        assert client.get(f"{SPEECH}/left").json()["state"] == "running"

    wait_until(lambda: client.get(f"{SPEECH}/left").status_code == 404)
    assert client.post(SPEECH, json={**BODY, "request_id": "left"}).status_code == 200


def test_digests_mean_the_wav_file_whatever_the_format(client: httpx.Client) -> None:
    """Of pcm the body's own digest is that of the samples; a streamed WAV leaves its sizes open."""
    pcm = client.post(SPEECH, json={**BODY, "request_id": "pcm", "response_format": "pcm"})
    wav = client.get(f"{SPEECH}/pcm/audio")
    streamed = client.post(SPEECH, json={**BODY, "request_id": "pcm", "stream_format": "audio"})

    assert sha256_hex(pcm.content) == pcm.headers["x-psionic-csm-pcm16-sha256"]
    assert sha256_hex(wav.content) == pcm.headers["x-psionic-csm-wav-pcm16-digest"]
    assert wav.content[44:] == pcm.content == streamed.content[44:]
    assert streamed.content[4:8] == streamed.content[40:44] == b"\xff" * 4
    for format_ in ("multipart_mixed", "jsonl_base64"):
        body = {**BODY, "stream": True, "stream_format": format_, "response_format": "pcm"}
        refusal = client.post(SPEECH, json=body).json()["error"]
        assert refusal["code"] == "unsupported_response_format"


@pytest.mark.parametrize("transport", [{}, JSONL], ids=["whole", "streamed"])
def test_a_text_that_overflows_the_context_is_a_plain_400(
    client: httpx.Client, transport: dict[str, Any]
) -> None:
    """The worker's tokenizer counts, here a token a byte; whoever streams hears it as HTTP, too."""
    body = {"input": "\U0001f600" * 500, "max_audio_length_ms": 20_000, **transport}

    reply = client.post(SPEECH, json=body)

    error = reply.json()["error"]
    assert (reply.status_code, error["code"], error["param"]) == (400, "context_overflow", "input")
    assert reply.headers["x-should-retry"] == "false"
