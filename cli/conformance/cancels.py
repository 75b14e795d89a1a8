"""Cancelling: what runs stops, what has not come yet is refused, and leaving is forgotten."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

from cli.conformance.envelope import as_in_table, refused
from cli.conformance.framings import Event, line_event
from cli.conformance.promise import Broken, Skipped, promised, same
from cli.conformance.run import LONG_TEXT, Run
from cli.conformance.shapes import fits
from cli.conformance.speech import ENDS
from cli.conformance.streams import request
from cli.conformance.wire import Arriving, Reply, not_spoken
from gateway.answers import CancellationReport
from gateway.formats import JSONL
from shared.paths import CANCELLATIONS, SPEECH

LOOK_EVERY_S: Final = 0.05
TOO_QUICK: Final = "it had ended before the cancel came: too quick to be cut short"


def cancel(run: Run, **what: str) -> dict[str, Any]:
    """The report of a cancel. Raises Broken."""
    reply = run.wire.post(CANCELLATIONS, what)
    same("the status", 202, reply.status)
    report = reply.object()
    fits(CancellationReport, report, "the report")
    return report


def remembered(run: Run) -> None:
    """A cancel that overtakes its request still wins."""
    turn = run.id("turn")
    for _ in range(2):
        same("the report", {"hits": [], "remembered": True}, cancel(run, cancellation_id=turn))
    late = run.speech("late", cancellation_id=turn)
    reply = run.wire.post(SPEECH, late)
    refused(reply, "cancelled", request_id=run.id("late"))
    same("x-psionic-cancellation-id", turn, reply.headers.get("x-psionic-cancellation-id"))


def running(run: Run) -> None:
    """A stream that has begun ends with an error event, and its id stays cancelled."""
    name = "cut"
    body = _long(run, name)
    with run.wire.begin("POST", SPEECH, body) as arriving:
        events = _events(arriving)
        _first_audio(events)
        report = cancel(run, request_id=run.id(name))
        rest = list(events)
    _hit(report, run.id(name), "running")
    last = rest[-1] if rest else None
    promised(last is not None and last.kind == "error", "a cancelled stream has no error event")
    assert last is not None
    as_in_table(last.document["error"], "cancelled")
    same("the error event's failure_code", "cancelled", last.document["failure_code"])
    _stays_cancelled(run, name, body)


def in_one_piece(run: Run) -> str:
    """A one-shot that waits or runs is answered ``cancelled``; the turn may name it."""
    name, turn = "hushed", run.id("hushed-turn")
    body = run.speech(name, input=LONG_TEXT, max_audio_length_ms=None, cancellation_id=turn)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(run.wire.post, SPEECH, body)
        _until_admitted(run, name, answer)
        report = cancel(run, cancellation_id=turn)
        reply = answer.result()
    was = _hit(report, run.id(name), "running", "queued")
    same("remembered", True, report["remembered"])
    refused(reply, "cancelled", request_id=run.id(name))
    return f"it was {was}"


def departure(run: Run) -> None:
    """Who closes the connection leaves: the work stops, and the id is forgotten."""
    name = "left"
    with run.wire.begin("POST", SPEECH, _long(run, name)) as arriving:
        _first_audio(_events(arriving))
    end = time.monotonic() + run.wire.timeout_s
    while time.monotonic() < end:
        reply = run.wire.get(f"{SPEECH}/{run.id(name)}")
        if reply.status != 200:
            refused(reply, "result_not_found")
            return
        terminal = reply.object().get("terminal")
        if isinstance(terminal, dict) and terminal.get("finish_reason") in ENDS:
            raise Skipped(TOO_QUICK)
        time.sleep(LOOK_EVERY_S)
    raise Broken("it still speaks to nobody")


def _long(run: Run, name: str) -> dict[str, Any]:
    return request(run, JSONL, name, input=LONG_TEXT, max_audio_length_ms=None)


def _events(arriving: Arriving) -> Iterator[Event]:
    if arriving.status != 200:
        raise not_spoken(arriving.whole())
    waiting = b""
    for piece in arriving.pieces():
        *lines, waiting = (waiting + piece).split(b"\n")
        for line in lines:
            yield line_event(line)
    promised(not waiting, "the last line has no end")


def _first_audio(events: Iterator[Event]) -> None:
    for event in events:
        if event.kind == "audio":
            return
    raise Broken("the stream ended before its first audio")


def _hit(report: dict[str, Any], request_id: str, *states: str) -> str:
    """What the one request that was hit was. Raises Skipped when it was too quick."""
    same("the requests hit", [request_id], [hit["request_id"] for hit in report["hits"]])
    was = str(report["hits"][0]["was"])
    if was == "already_finished":
        raise Skipped(TOO_QUICK)
    promised(was in states, f"it was {{}}, not {' or '.join(states)}", was)
    return was


def _stays_cancelled(run: Run, name: str, body: dict[str, Any]) -> None:
    terminal = run.result(name).get("terminal") or {}
    same("the result's finish_reason", "cancelled", terminal.get("finish_reason"))
    again = cancel(run, request_id=run.id(name))
    same("was", "already_finished", again["hits"][0]["was"] if again["hits"] else None)
    refused(run.wire.post(SPEECH, body), "cancelled", request_id=run.id(name))


def _until_admitted(run: Run, name: str, answer: Future[Reply]) -> None:
    """Until its result is known. Raises Declined or Broken when it is refused before."""
    while run.wire.get(f"{SPEECH}/{run.id(name)}").status != 200:
        if answer.done():
            raise not_spoken(answer.result())
        time.sleep(LOOK_EVERY_S)
