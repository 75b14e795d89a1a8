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
        load = client.get("/psionic/csm/load").json()
        refusal = client.post(SPEECH, json={}).json()["error"]

    headers = {name for name in (*whole.headers, *streamed.headers) if name.startswith("x-")}
    streams = {"x-psionic-streaming-mode", "x-psionic-stream-window-frames"}
    documents = (*events, result, result["terminal"], load, *load["artifacts"], *load["gateways"])
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
