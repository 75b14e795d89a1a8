"""How an answer is bent: one header, one key, one event of what an honest gateway says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from shared.wav import HEADER_BYTES
from tests.cli.conformance.liar import Lie, Said

SPEECH = "/psionic/csm/speech"


def on(path: str, lie: Lie) -> Lie:
    """A lie that is told at one path."""
    return lambda said: lie(said) if said.path == path else said


def under(path: str, lie: Lie) -> Lie:
    return lambda said: lie(said) if said.path.startswith(path) else said


def refusals(lie: Lie) -> Lie:
    return lambda said: lie(said) if said.status >= 400 else said


def spoken(lie: Lie) -> Lie:
    return lambda said: lie(said) if said.path == SPEECH and said.status == 200 else said


def key(*path: str | int, value: Any) -> Lie:
    """Another value at one place of a document; a value of ... takes the key away."""

    def lie(said: Said) -> Said:
        document = said.document()
        place = document
        for name in path[:-1]:
            place = place[name]
        if value is ...:
            del place[path[-1]]
        else:
            place[path[-1]] = value
        return said.saying(document)

    return lie


def header(name: str, value: str | None) -> Lie:
    return lambda said: said.with_headers(**{name: value})


def status(code: int) -> Lie:
    return lambda said: replace(said, status=code)


def swapped(old: bytes, new: bytes) -> Lie:
    return lambda said: replace(said, body=said.body.replace(old, new))


def last_event(said: Said) -> Said:
    """A stream that leaves its last line out."""
    return replace(said, body=said.body[: said.body.rstrip().rfind(b"\n") + 1])


def twice(said: Said) -> Said:
    """A stream that says its last line twice."""
    return replace(said, body=said.body + said.body.splitlines(keepends=True)[-1])


def louder(said: Said) -> Said:
    """Other samples than those that the digests are of."""
    return replace(said, body=said.body[:HEADER_BYTES] + b"\x01" + said.body[HEADER_BYTES + 1 :])


def streamed(stream_format: str, lie: Lie) -> Lie:
    def told(said: Said) -> Said:
        is_it = said.asked.get("stream_format") == stream_format and said.status == 200
        return lie(said) if is_it else said

    return told


def named(suffix: str, lie: Lie) -> Lie:
    """A lie about the request whose id ends so."""
    return lambda said: (
        lie(said) if str(said.asked.get("request_id", "")).endswith(suffix) else said
    )


def sse_without_done(said: Said) -> Said:
    return replace(said, body=said.body[: said.body.index(b"event: speech.audio.done")])


def silent(said: Said) -> Said:
    return replace(said, status=200, body=b"{}", headers={"content-type": "application/json"})


def is_outcome(said: Said) -> bool:
    return said.path.endswith("/outcome")


def outcomes(lie: Lie) -> Lie:
    return lambda said: lie(said) if is_outcome(said) and said.status < 400 else said
