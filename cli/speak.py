"""``psionic-csm speak``: one text into one file, by a running gateway or a stack of its own."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from cli import audio_file, remedies, show, spoken
from cli.artifacts import chosen_or_demo, open_artifact
from cli.client import GatewayClient
from cli.exits import REFUSED, CommandFailed
from cli.limits import SpeechLimits, limits_on
from cli.logs import LogStream
from cli.show import Activity
from cli.signals import Interrupted, Signals
from cli.spoken import Spoken
from cli.stack import Stack
from cli.stack_plan import StackPlan
from gateway.spoken_en.speller import spoken_en
from gateway.text import AS_SENT, SPOKEN_EN, spoken_text
from shared.errors import SpeechError
from shared.wav import FRAME_BYTES, FRAME_MS

START_WAIT_S: Final = 180.0


@dataclass(frozen=True, slots=True)
class Wish:
    """What the person at the terminal asked for."""

    text: str
    output: Path
    url: str | None = None
    api_key: str | None = None
    stream: bool = False
    voice: str | None = None
    seed: int | None = None
    spell_out: bool = False
    temperature: float | None = None
    top_k: int | None = None
    length_ms: int | None = None
    timeout_ms: int | None = None
    request_id: str | None = None
    artifact_id: str | None = None
    artifact: Path | None = None
    lanes: int | None = None
    verbose: bool = False
    as_json: bool = False

    def spoken(self) -> str:
        """The words that are spoken for the text."""
        return spoken_en(self.text) if self.spell_out else self.text

    def body(self) -> dict[str, Any]:
        """The request, with only what was asked for, so that the service's defaults apply."""
        optional = {
            "voice_profile_id": self.voice,
            "artifact_id": self.artifact_id,
            "seed": self.seed,
            "text_normalization": SPOKEN_EN if self.spell_out else None,
            "max_audio_length_ms": self.length_ms,
            "timeout_ms": self.timeout_ms,
            "psionic_csm": {
                name: value
                for name, value in (("temperature", self.temperature), ("top_k", self.top_k))
                if value is not None
            },
        }
        named = {name: value for name, value in optional.items() if value not in (None, {})}
        request_id = self.request_id or f"cli-{uuid4().hex}"
        return {"request_id": request_id, "input": self.text, **named}


@dataclass(frozen=True, slots=True)
class Told:
    """An answer, and what its artifact says that it can't say of this text."""

    answer: Spoken
    limits: SpeechLimits | None


def run(wish: Wish, environment: Mapping[str, str] = os.environ) -> None:
    """Speaks, checks, writes and reports. Raises :class:`CommandFailed` or ``Interrupted``."""
    audio_file.check(wish.output)
    began = time.monotonic()
    try:
        told = _spoken(wish, environment)
        audio_file.write(wish.output, told.answer.wav)
    except Interrupted as interrupted:
        interrupted.note = f"interrupted: {wish.output} was not written"
        raise
    _report(wish, told, time.monotonic() - began)


def _spoken(wish: Wish, environment: Mapping[str, str]) -> Told:
    with show.activity() as activity, Signals() as signals:
        if wish.url is None:
            return _by_own_stack(wish, activity, signals, environment)
        with signals.raising(), GatewayClient(wish.url, api_key=wish.api_key) as client:
            # /health states those of the default artifact alone.
            stated = None if wish.artifact_id else client.health().get("speech_limits")
            limits = _warned(wish, stated, activity)
            return Told(_ask(client, wish, activity), limits)


def _by_own_stack(
    wish: Wish, activity: Activity, signals: Signals, environment: Mapping[str, str]
) -> Told:
    _checked(wish)
    with signals.raising():
        artifact = chosen_or_demo(wish.artifact, activity, environment)
        limits = _warned(wish, open_artifact(artifact).published_limits(), activity)
    log = LogStream(sys.stderr if wish.verbose else None, colour=sys.stderr.isatty())
    plan = StackPlan(artifact=artifact, lanes=wish.lanes, private=True)
    activity("starting Redis, scheduler, worker and gateway")
    with Stack(plan, log, signals, environment) as stack:
        with signals.raising(), GatewayClient(stack.url, api_key=wish.api_key) as client:
            stack.wait_until_ready(client, timeout_s=START_WAIT_S, notify=activity)
            answer = _ask(client, wish, activity)
        activity("shutting down")
    return Told(answer, limits)


def _checked(wish: Wish) -> None:
    """What its gateway would refuse the text for, before anybody waits for a model to load."""
    try:
        spoken_text(wish.text, SPOKEN_EN if wish.spell_out else AS_SENT)
    except SpeechError as error:
        raise CommandFailed(
            REFUSED, error.message, code=error.code, hint=remedies.of_caller(error.code)
        ) from error


def _warned(wish: Wish, stated: Any, activity: Activity) -> SpeechLimits | None:
    """Says what can't be said before anybody waits for it."""
    limits = limits_on(wish.spoken(), stated)
    if limits is not None:
        activity.note(limits.rows())
    return limits


def _ask(client: GatewayClient, wish: Wish, activity: Activity) -> Spoken:
    activity("speaking")
    began = time.monotonic()
    if not wish.stream:
        answer = spoken.from_response(*client.speak(wish.body()))
    else:

        def heard(pcm_bytes: int, _: Mapping[str, Any]) -> None:
            frames = pcm_bytes // FRAME_BYTES
            seconds = time.monotonic() - began
            activity.flicker(
                f"speaking: {frames} frames, {frames * FRAME_MS / 1000:.2f} s of audio "
                f"in {seconds:.1f} s"
            )

        answer = spoken.from_events(client.stream(wish.body()), heard)
    spoken.check(answer)
    return answer


def _report(wish: Wish, told: Told, took_s: float) -> None:
    """To standard output, or to standard error where the audio itself went to the former."""
    answer = told.answer
    console = show.err() if audio_file.is_standard_output(wish.output) else show.out()
    if wish.as_json:
        limits = told.limits.facts() if told.limits else None
        document = {**answer.facts(), "file": str(wish.output), "verified": True}
        show.document({**document, "speech_limits": limits}, console)
    else:
        show.facts(_rows(wish, answer, took_s), console)


def _rows(wish: Wish, answer: Spoken, took_s: float) -> list[tuple[str, str | None]]:
    cause = f" ({answer.stop_cause})" if answer.stop_cause else ""
    seconds = answer.duration_ms / 1000
    speed = seconds / max(answer.full_generation_latency_ms / 1000, 0.001)
    first = answer.first_audio_latency_ms
    waited = (
        "" if answer.queue_wait_ms is None else f", {answer.queue_wait_ms} ms of it in the queue"
    )
    return [
        ("file", f"{wish.output} ({len(answer.wav)} bytes, 24 kHz mono PCM16)"),
        ("duration", f"{seconds:.2f} s, {answer.frames} frames of {FRAME_MS} ms"),
        ("finish", f"{answer.finish_reason}{cause}"),
        ("first audio", None if first is None else f"{first} ms after admission{waited}"),
        ("whole answer", f"{answer.full_generation_latency_ms} ms, {speed:.1f} x real time"),
        ("voice", f"{answer.voice_profile_id}, seed {answer.seed}, on {answer.backend}"),
        ("wav digest", f"{answer.wav_digest} (verified)"),
        ("codes digest", answer.codes_digest),
        ("artifact", answer.artifact_id),
        ("request id", answer.request_id + (" (replayed)" if answer.replayed else "")),
        ("command took", f"{took_s:.1f} s"),
    ]
