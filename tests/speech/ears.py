"""What the tests ask to be spoken, and how much of it must be heard."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

import httpx

from demo_voice.corpus import kept
from demo_voice.hearing import Listeners, Wave
from demo_voice.scores import Score, by_ear, score
from demo_voice.takes import read_wav
from demo_voice.words import words_of
from tests.conftest import wait_until

PATH: Final = "/psionic/csm/speech"
LOAD: Final = "/psionic/csm/load"
LINES: Final = (*kept("benchmark"), *kept("validation")[:12])
"""Written by hand, kept from training, and none of the test sentences: those are for the figure."""
FEW: Final = LINES[:6]
UNIFORM: Final = 0.5
BIGRAM: Final = 0.35
"""Most of the words that may be misheard, homophones as one."""


@dataclass(frozen=True, slots=True)
class Speaker:
    """One gateway. The draw is a line's number, so that each test speaks the same."""

    client: httpx.Client

    def reply(self, text: str, **fields: Any) -> httpx.Response:
        body = {"request_id": f"speech-{uuid4().hex}", "input": text, "seed": 1, **fields}
        return self.client.post(PATH, json=body).raise_for_status()

    def wave(self, reply: httpx.Response) -> Wave:
        return read_wav(reply.content)

    def say(self, text: str, **fields: Any) -> Wave:
        return self.wave(self.reply(text, **fields))

    def wait_until_idle(self) -> None:
        """Until no worker says any more that it speaks."""
        wait_until(
            lambda: not any(each["in_flight"] for each in self.client.get(LOAD).json()["workers"]),
            60,
        )

    def events(self, text: str, **fields: Any) -> Iterator[dict[str, Any]]:
        """The events of a stream of JSON lines."""
        body = {"request_id": f"speech-{uuid4().hex}", "input": text, "seed": 1, **fields}
        body |= {"stream": True, "stream_format": "jsonl_base64"}
        with self.client.stream("POST", PATH, json=body) as reply:
            reply.raise_for_status()
            for line in reply.iter_lines():
                if line.strip():
                    yield json.loads(line)


def misheard(ears: Listeners, listener: str, lines: tuple[str, ...], waves: list[Wave]) -> Score:
    """Word errors of one listener, homophones as one."""
    heard = [ears[listener].hear(wave) for wave in waves]
    meant = [words_of(line) for line in lines]
    return score([(by_ear(m), by_ear(h)) for m, h in zip(meant, heard, strict=True)])


def check_understood(
    ears: Listeners, lines: tuple[str, ...], waves: list[Wave], room: float = 0.0
) -> None:
    """Both listeners hear enough of it; ``room`` is what may be misheard beyond the bounds."""
    for listener, most in (("uniform", UNIFORM), ("bigram", BIGRAM)):
        rate = misheard(ears, listener, lines, waves).word_error_rate
        assert rate <= most + room, f"{listener}: {rate:.3f}"
