"""One run of the checks: the deployment, the ids of this run, and what several checks look at."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final
from uuid import uuid4

from cli.conformance.promise import promised
from cli.conformance.shapes import fits
from cli.conformance.wire import Reply, Wire, not_spoken
from gateway.answers import Result
from gateway.service_answers import Metadata
from shared.paths import METADATA, SPEECH

TEXT: Final = "One, two, three."
OTHER_TEXT: Final = "Four, five, six."
SENTENCE: Final = "This is said to be cut short, and whoever hears all of it has waited long. "
LONG_TEXT: Final = SENTENCE * 2
SEED: Final = 7
LENGTH_MS: Final = 800
TEXTS: Final = (TEXT, OTHER_TEXT, SENTENCE.strip())


class Run:
    """What a check is given. Ids begin with ``prefix``, so that no other run has them."""

    def __init__(self, wire: Wire, api_key: str | None = None) -> None:
        self.wire = wire
        self.api_key = api_key
        self.secrets = (*TEXTS, *([api_key] if api_key else []))
        """Whatever a report says, it says none of these."""
        self.prefix = f"smoke-{uuid4().hex}"
        self.published: dict[str, Any] = {}
        """The metadata as they came, for the report."""

    def id(self, name: str) -> str:
        return f"{self.prefix}-{name}"

    def speech(self, name: str, **changes: Any) -> dict[str, Any]:
        """A short request that is governed in full: voice and artifact are named."""
        body = {
            "request_id": self.id(name),
            "input": TEXT,
            "voice_profile_id": self.voice_id,
            "artifact_id": self.artifact_id,
            "seed": SEED,
            "max_audio_length_ms": LENGTH_MS,
        }
        return {key: value for key, value in {**body, **changes}.items() if value is not None}

    @cached_property
    def metadata(self) -> dict[str, Any]:
        reply = self.wire.get(METADATA)
        if reply.status != 200:
            raise not_spoken(reply)
        self.published = reply.object()
        fits(Metadata, self.published, "the metadata")
        promised(bool(self.published["voice_profiles"]), "no voice profile is published")
        return self.published

    @cached_property
    def spoken(self) -> Reply:
        """One short answer in one piece: the first that this run asks for."""
        return self.wire.speak(self.speech("one"))

    @property
    def pcm(self) -> bytes:
        """The samples of ``spoken``."""
        return self.spoken.body[44:]

    @property
    def determinism_class(self) -> str | None:
        """Of the worker that spoke ``spoken``."""
        promised(self.spoken.status == 200, "nothing was spoken")
        terminal = self.result("one").get("terminal") or {}
        found = terminal.get("determinism_class")
        return found if isinstance(found, str) else None

    def result(self, name: str) -> dict[str, Any]:
        reply = self.wire.get(f"{SPEECH}/{self.id(name)}")
        promised(reply.status == 200, f"a result is answered with HTTP {reply.status}")
        document = reply.object()
        fits(Result, document, "the result")
        return document

    @property
    def voice_id(self) -> str:
        return str(self.metadata["voice_profiles"][0]["id"])

    @property
    def artifact_id(self) -> str:
        return str(self.metadata["artifact_descriptor"]["artifact_id"])
