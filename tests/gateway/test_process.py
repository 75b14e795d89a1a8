"""The gateway as a process over a real Redis: sockets, signals, and Redis going away."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from socket import AF_INET, SOCK_STREAM, create_server

import httpx
import pytest

from gateway.__main__ import CantListen, listening
from scheduler.queue import Claim
from shared.errors import SpeechError
from shared.governance.artifacts import ArtifactRegistry
from shared.wav import wav_file
from tests.conftest import RedisServer, quickest, wait_until
from tests.gateway.artifacts import write_artifact
from tests.gateway.processes import Process
from tests.gateway.world import PATIENCE_S, SPEECH, pcm

pytestmark = pytest.mark.redis
HELLO = {"input": "Hello.", "request_id": "r1"}


def speak_hello(process: Process, threads: ThreadPoolExecutor) -> None:
    """One answer of one frame, heard to its end."""
    answer = threads.submit(process.post, HELLO)
    claim = process.claim()
    process.worker.post(claim, 0)
    process.worker.end(claim, 1)
    assert answer.result(PATIENCE_S).status_code == 200


def test_a_job_travels_by_rq(process: Process, threads: ThreadPoolExecutor) -> None:
    """A request reaches a worker by RQ's list within a moment, and its answer comes back."""
    started = time.monotonic()
    answer = threads.submit(process.post, HELLO)
    claim = process.claim()
    picked_up_s = time.monotonic() - started
    process.worker.post(claim, 0, 1)
    process.worker.end(claim, 2)

    response = answer.result(PATIENCE_S)

    assert (response.status_code, response.content) == (200, wav_file(pcm(0) + pcm(1)))
    assert "server" not in response.headers
    assert picked_up_s < 5
    wait_until(lambda: any(line["event"] == "request" for line in process.lines))
    (line,) = [line for line in process.lines if line["event"] == "request"]
    assert (line["request_id"], line["status"], line["route"]) == ("r1", 200, SPEECH)
    assert (line["bytes"], line["frames"]) == (len(response.content), 2)
    assert "code" not in line
    assert "Hello" not in json.dumps(process.lines)


def test_of_many_outcomes_exactly_one_is_recorded(
    process: Process, threads: ThreadPoolExecutor
) -> None:
    """Those that say the same agree, the others are refused, and the one outlasts Redis."""
    speak_hello(process, threads)
    path = "/psionic/csm/evidence/r1"
    outcomes = ["accepted", "rejected", "fallback_used", "not_played"] * 2

    told = list(
        threads.map(
            lambda said: process.http.post(f"{path}/outcome", json={"outcome": said}), outcomes
        )
    )
    process.server.write_out()
    process.server.stop(kill=True)
    process.server.start()

    wait_until(process.redis_answers)
    recorded = process.http.get(path).json()["business_outcome"]
    assert sorted(reply.status_code for reply in told) == [200, 201, *[409] * 6]
    for reply in told:
        if reply.is_success:
            assert reply.json()["business_outcome"] == recorded
        else:
            assert reply.json()["error"]["code"] == "outcome_conflict"
    wait_until(lambda: sum("outcome" in line for line in process.lines) >= 2)
    assert {line["outcome"] for line in process.lines if "outcome" in line} == {recorded["outcome"]}


def test_an_outcome_that_a_full_redis_can_t_keep_may_be_said_again(
    process: Process, threads: ThreadPoolExecutor
) -> None:
    """It is refused whole, with advice to retry; the evidence is there all the same."""
    speak_hello(process, threads)
    path, outcome = "/psionic/csm/evidence/r1", {"outcome": "accepted"}

    with process.server.client() as client:
        client.config_set("maxmemory", "1mb")
        full = process.http.post(f"{path}/outcome", json=outcome)
        evidence = process.http.get(path)
        client.config_set("maxmemory", "0")
    again = process.http.post(f"{path}/outcome", json=outcome)

    assert full.status_code == 503
    assert full.json()["error"]["code"] == "queue_memory_low"
    assert full.headers["x-should-retry"] == "true"
    assert (evidence.status_code, evidence.json()["business_outcome"]) == (200, None)
    assert again.status_code == 201


def test_a_raw_stream_that_fails_is_a_broken_transfer(
    process: Process, threads: ThreadPoolExecutor
) -> None:
    """The client of a raw stream sees that its end is missing, and the log has its code alone."""

    def read() -> bytes:
        heard = b""
        with process.http.stream("POST", SPEECH, json={**HELLO, "stream_format": "audio"}) as reply:
            for piece in reply.iter_bytes():
                heard += piece
        return heard

    reading: Future[bytes] = threads.submit(read)
    claim = process.claim()
    process.worker.post(claim, 0)
    process.worker.end(claim, 1, "error", failure_code="csm_synthesis_failed")

    with pytest.raises(httpx.RemoteProtocolError):
        reading.result(PATIENCE_S)
    wait_until(lambda: any(line["event"] == "request" for line in process.lines))
    assert process.lines[-1]["code"] == "csm_synthesis_failed"
    assert "error" not in {line["level"] for line in process.lines}


def test_a_closed_socket_stops_the_work(process: Process) -> None:
    """A client that closes its connection in mid-stream has its lane freed."""
    body = {**HELLO, "stream_format": "audio", "response_format": "pcm"}
    request = process.http.build_request("POST", SPEECH, json=body)
    claims: list[Claim] = []

    def feed() -> None:
        claims.append(process.claim())
        process.worker.post(claims[0], 0)

    feeding = threading.Thread(target=feed, daemon=True)
    feeding.start()
    reply = process.http.send(request, stream=True)
    assert next(reply.iter_bytes()) == pcm(0)
    feeding.join()
    reply.close()

    wait_until(lambda: process.worker.verdict(claims[0]) == "cancelled")


def test_a_growing_body_is_refused_while_it_comes(process: Process) -> None:
    """A chunked body past the limit is answered without waiting for its end."""

    def endless() -> Iterator[bytes]:
        for _ in range(20):
            yield b" " * 8192

    reply = process.http.post(
        SPEECH, content=endless(), headers={"content-type": "application/json"}
    )

    assert (reply.status_code, reply.json()["error"]["code"]) == (413, "body_too_large")


def test_a_drain_serves_those_inside(process: Process, threads: ThreadPoolExecutor) -> None:
    """On SIGTERM nobody is let in, what runs is served to its end, and the process exits 0."""
    inside = threads.submit(process.post, HELLO)
    claim = process.claim()
    process.signal(signal.SIGTERM)
    wait_until(lambda: process.http.get("/health/ready").status_code == 503)
    wait_until(lambda: any(line["event"] == "draining" for line in process.lines))

    turned_away = process.post({"input": "Hello."})
    reasons = process.http.get("/health/ready").json()["reasons"]
    process.worker.post(claim, 0)
    process.worker.end(claim, 1)

    assert (turned_away.status_code, turned_away.json()["error"]["code"]) == (503, "draining")
    assert turned_away.headers["connection"] == "close"
    assert reasons == ["draining"]
    answer = inside.result(PATIENCE_S)
    assert (answer.status_code, answer.headers["connection"]) == (200, "close")
    assert process.exit_status() == 0
    (said,) = (line for line in process.lines if line["event"] == "draining")
    assert said["open_requests"] == 1


def test_the_grace_has_an_end(
    redis_server: RedisServer, tmp_path: Path, threads: ThreadPoolExecutor
) -> None:
    """Whoever is left when it is over is told, the lanes are freed, and the process exits 0."""
    process = Process(
        redis_server, write_artifact(tmp_path / "artifact"), PSIONIC_CSM_DRAIN_GRACE_MS="300"
    )
    lines = {"stream": True, "stream_format": "jsonl_base64"}
    stream = threads.submit(process.post, {**HELLO, **lines})
    claim = process.claim()
    process.worker.post(claim, 0)
    process.signal(signal.SIGTERM)

    last = json.loads(stream.result(PATIENCE_S).content.splitlines()[-1])
    assert (last["event"], last["error"]["code"]) == ("error", "draining")
    assert process.exit_status() == 0
    assert process.worker.verdict(claim) == "cancelled"
    process.close()


def test_an_idle_gateway_stops_at_once(process: Process) -> None:
    """With nobody inside there is nothing to wait for."""
    started = time.monotonic()
    process.signal(signal.SIGTERM)

    assert process.exit_status() == 0
    assert time.monotonic() - started < 12  # the grace is 25


def test_a_second_signal_ends_the_grace(process: Process, threads: ThreadPoolExecutor) -> None:
    """Whoever signals twice means it: those inside are told, in the envelope or in the stream."""
    one_shot = threads.submit(process.post, HELLO)
    process.claim()
    lines = {"stream": True, "stream_format": "jsonl_base64"}
    stream = threads.submit(process.post, {**HELLO, **lines, "request_id": "r2"})
    process.worker.post(process.claim(), 0)
    process.signal(signal.SIGTERM)
    wait_until(lambda: process.http.get("/health/ready").status_code == 503)
    process.signal(signal.SIGTERM)

    told = one_shot.result(PATIENCE_S)
    last = json.loads(stream.result(PATIENCE_S).content.splitlines()[-1])
    assert (told.status_code, told.json()["error"]["code"]) == (503, "draining")
    assert (last["event"], last["error"]["code"]) == ("error", "draining")
    assert process.exit_status() == 0


def test_a_killed_gateway_costs_the_others_callers_nothing(
    redis_server: RedisServer, tmp_path: Path, threads: ThreadPoolExecutor
) -> None:
    """A job that another gateway also listens to goes on; one that only it listened to ends."""
    artifact = write_artifact(tmp_path / "artifact")
    short = {"PSIONIC_CSM_LISTENER_TTL_MS": "3000", "PSIONIC_CSM_LISTENER_RENEW_MS": "200"}
    dying, living = (Process(redis_server, artifact, **short) for _ in range(2))
    shared = threads.submit(dying.post, HELLO)
    claim = dying.claim()
    attached = threads.submit(living.post, HELLO)
    alone = threads.submit(dying.post, {"input": "Hello.", "request_id": "r2"})
    lonely = dying.claim()
    wait_until(lambda: len(living.listeners(claim)) == 2)

    dying.signal(signal.SIGKILL)

    for lost in (shared, alone):
        with pytest.raises(httpx.TransportError):
            lost.result(PATIENCE_S)

    def freed() -> bool:
        living.reap()
        living.worker.queue.renew([(each.job_id, each.execution) for each in (claim, lonely)])
        return living.worker.verdict(lonely) == "cancelled"

    wait_until(freed)
    assert living.worker.post(claim, 0) == ["ok"]
    living.worker.end(claim, 1)
    assert attached.result(PATIENCE_S).content == wav_file(pcm(0))
    dying.close()
    living.close()


def test_redis_may_come_and_go(process: Process, threads: ThreadPoolExecutor) -> None:
    """Hung, away, and back: 503 within seconds for everybody, and service without a restart."""

    def refused_in_time() -> str:
        started = time.monotonic()
        reply = process.post({"input": "Hello."})
        assert time.monotonic() - started < 4
        assert reply.status_code == 503
        return str(reply.json()["error"]["code"])

    os.kill(process.server.pid, signal.SIGSTOP)
    try:
        # Many at once, more than are admitted together: none waits for another's time-out.
        with ThreadPoolExecutor(100) as crowd:
            asking = [crowd.submit(refused_in_time) for _ in range(100)]
            hung = [each.result(PATIENCE_S) for each in asking]
        health_s, health = quickest(lambda: process.http.get("/health"))
    finally:
        os.kill(process.server.pid, signal.SIGCONT)
    assert hung == ["queue_unavailable"] * 100
    assert health.json()["runtime"]["refusal"]["code"] == "queue_unavailable"
    assert health_s < 1

    process.server.stop(kill=True)
    assert refused_in_time() == "queue_unavailable"
    process.server.start()
    process.worker.beat()
    wait_until(lambda: process.http.get("/health/ready").status_code == 200)
    answer = threads.submit(process.post, {"input": "Hello."})
    claim = process.claim()
    process.worker.post(claim, 0)
    process.worker.end(claim, 1)

    assert answer.result(PATIENCE_S).status_code == 200


@pytest.mark.parametrize(
    ("environment", "name"),
    [
        ({"PSIONIC_CSM_PORT": "http"}, "PSIONIC_CSM_PORT"),
        ({"PSIONIC_CSM_TIER": "canary"}, "PSIONIC_CSM_API_KEYS"),
        ({"PSIONIC_CSM_ARTIFACTS": ""}, "PSIONIC_CSM_ARTIFACTS"),
        ({"PSIONIC_CSM_ARTIFACTS": "/nowhere"}, "PSIONIC_CSM_ARTIFACTS"),
    ],
)
def test_bad_settings_stop_the_start(environment: dict[str, str], name: str) -> None:
    """A setting that can't be used is named in one line, and the status is 2."""
    done = subprocess.run(
        [sys.executable, "-m", "gateway"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert done.returncode == 2
    assert done.stderr.startswith(name)
    assert len(done.stderr.splitlines()) == 1


def test_a_bad_artifact_is_named_by_its_directory(tmp_path: Path) -> None:
    """Of several directories the message says which one can't be served."""
    good = write_artifact(tmp_path / "good").directory
    bad = write_artifact(tmp_path / "bad", weights="b").directory
    (bad / "voices.json").write_text("{}")

    with pytest.raises(SpeechError) as caught:
        ArtifactRegistry.load([good, bad])

    assert caught.value.code == "voice_profile_digest_mismatch"
    assert caught.value.message.startswith(f"{bad}: voices.json")


def test_a_port_that_is_taken_is_told_with_its_setting(tmp_path: Path) -> None:
    """The log has an event with setting, address and cause, and the status is 3, not that of a
    setting that can never be used.
    """
    with create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = subprocess.run(
            [sys.executable, "-m", "gateway"],
            env={
                **os.environ,
                "PSIONIC_CSM_ARTIFACTS": str(write_artifact(tmp_path / "a").directory),
                "PSIONIC_CSM_PORT": str(port),
            },
            capture_output=True,
            text=True,
            timeout=60,
        )

    last = json.loads(done.stdout.splitlines()[-1])
    assert (done.returncode, done.stderr) == (3, "")
    assert (last["event"], last["setting"]) == ("port_unavailable", "PSIONIC_CSM_PORT")
    assert (last["level"], last["host"], last["port"]) == ("error", "127.0.0.1", port)
    assert "in use" in last["error"]


def test_every_address_of_a_host_is_listened_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that stands for several addresses is served on those that this machine has; where it
    has none, or one is taken, the start is refused.
    """
    elsewhere, here = ("192.0.2.1", 0), ("127.0.0.1", 0)
    found = [(AF_INET, SOCK_STREAM, 0, "", address) for address in (elsewhere, here)]

    monkeypatch.setattr("gateway.__main__.getaddrinfo", lambda *_, **__: found)
    sockets = listening("both", 0)
    names = [each.getsockname() for each in sockets]
    found[1:] = [(AF_INET, SOCK_STREAM, 0, "", names[0])]
    with pytest.raises(CantListen, match="in use"):
        listening("both", 0)
    for each in sockets:
        each.close()

    assert [name for name, _ in names] == ["127.0.0.1"]
    del found[1:]
    with pytest.raises(CantListen, match="assign"):
        listening("elsewhere", 0)


def test_localhost_is_listened_on() -> None:
    """By whichever of its addresses there are."""
    sockets = listening("localhost", 0)
    names = {each.getsockname()[0] for each in sockets}
    for each in sockets:
        each.close()

    assert "127.0.0.1" in names
    assert names <= {"127.0.0.1", "::1"}
