"""``psionic-csm smoke``: does a gateway keep its main promises right now?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final
from uuid import uuid4

from cli import show, spoken
from cli.client import GatewayClient
from cli.exits import NOT_GENUINE, REFUSED, CommandFailed
from cli.spoken import Spoken

TEXT: Final = "One, two, three."
SEED: Final = 7
LENGTH_MS: Final = 800


def run(url: str, *, api_key: str | None, as_json: bool = False) -> None:
    """Says of each check how it went. Raises :class:`CommandFailed` at the first that fails."""
    report = Report(as_json)
    try:
        with GatewayClient(url, api_key=api_key) as client:
            report.step("serves", lambda: _ready(client))
            one = report.step("speaks in one piece", lambda: _one_shot(client))
            streamed = report.step("speaks in a stream", lambda: _streamed(client))
            report.step("the same seed gives the same audio", lambda: _same(one, streamed))
            report.step("refuses a blank text with its code", lambda: _refuses(client))
            report.step("takes a cancel for what it does not know", lambda: _cancels(client))
    finally:
        report.close(url)


class Report:
    """A line per check as it ends, or all of them as one JSON document."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self._checks: list[dict[str, Any]] = []

    def step(self, name: str, check: Callable[[], Any]) -> Any:
        try:
            result = check()
        except CommandFailed as failed:
            self._note(name, ok=False, code=failed.code, message=failed.message)
            raise
        self._note(name, ok=True, code=None, message=None)
        return result

    def close(self, url: str) -> None:
        if self._as_json:
            ok = all(check["ok"] for check in self._checks)
            show.document({"gateway": url, "ok": ok, "checks": self._checks})

    def _note(self, name: str, *, ok: bool, **why: str | None) -> None:
        self._checks.append({"check": name, "ok": ok, **why})
        if not self._as_json:
            show.out().print(f"{'ok' if ok else 'FAILED':6}  {name}")


def _ready(client: GatewayClient) -> None:
    if not client.is_ready():
        runtime = client.health()["runtime"]
        refusal = runtime.get("refusal") or {}
        raise CommandFailed(
            REFUSED,
            str(refusal.get("reason", f"the runtime is {runtime['state']}")),
            code=refusal.get("code"),
        )


def _body() -> dict[str, Any]:
    return {
        "request_id": f"smoke-{uuid4().hex}",
        "input": TEXT,
        "seed": SEED,
        "max_audio_length_ms": LENGTH_MS,
    }


def _one_shot(client: GatewayClient) -> Spoken:
    answer = spoken.from_response(*client.speak(_body()))
    spoken.check(answer)
    return answer


def _streamed(client: GatewayClient) -> Spoken:
    answer = spoken.from_events(client.stream(_body()), lambda *_: None)
    spoken.check(answer)
    return answer


def _same(one: Spoken, streamed: Spoken) -> None:
    if (one.wav_digest, one.codes_digest) != (streamed.wav_digest, streamed.codes_digest):
        raise CommandFailed(
            NOT_GENUINE,
            "the same text and seed gave two different answers",
            hint="expected only if the two ran on workers of different kinds",
        )


def _refuses(client: GatewayClient) -> None:
    try:
        client.speak({"input": "   "})
    except CommandFailed as refusal:
        if refusal.code == "empty_input":
            return
        raise
    raise CommandFailed(NOT_GENUINE, "a blank text was spoken")


def _cancels(client: GatewayClient) -> None:
    report = client.cancel(cancellation_id=f"smoke-{uuid4().hex}")
    if report.get("hits"):
        raise CommandFailed(NOT_GENUINE, "a cancel of an unknown id hit something")
