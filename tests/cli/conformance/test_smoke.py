"""``psionic-csm smoke`` as a command: when it stops, what it says and files, how it ends."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from cli import main
from cli.client import GatewayClient
from cli.conformance import report, streams
from cli.conformance.framings import Event, closed
from cli.conformance.plan import PLANS, SERVING, Check
from cli.conformance.promise import Broken, Declined, same
from cli.conformance.run import TEXTS, Run
from cli.conformance.wire import Wire
from cli.conformance.withholding import MOST_SHOWN, WITHHELD, shown, withheld
from cli.exits import NOT_GENUINE, OK, REFUSED, UNREACHABLE, USAGE
from cli.redis_server import free_port
from cli.smoke import verdict_on, verdicts
from tests.cli.conformance.conftest import KEY, Deployment
from tests.cli.conformance.liar import Lie, Said, truth

SPEECH = "/psionic/csm/speech"
ODD_KEY = r'sk-it\s-a"key-0123456789'
WITHOUT_KEY = ("PSIONIC_CSM_API_KEY", "PSIONIC_CSM_API_KEYS")


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in WITHOUT_KEY:
        monkeypatch.delenv(name, raising=False)


def smoke(deployment: Deployment, *arguments: str, lie: Lie = truth, live: str = SPEECH) -> int:
    deployment.liar.lie, deployment.liar.live = lie, live
    try:
        return main.run(
            ["smoke", "--url", deployment.client.url, "--expect", deployment.expect, *arguments]
        )
    finally:
        deployment.liar.lie = truth


def degraded(said: Said) -> Said:
    """Two lies: one early, one late."""
    if said.path == "/v1/models":
        return said.saying({"object": "list", "data": []})
    return replace(said, status=500) if said.path == "/psionic/csm/cancellations" else said


def test_a_whole_run_passes_and_is_filed(
    deployment: Deployment, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 0, a line a check, and evidence: schema, time, URL, versions, artifact, checks."""
    file = tmp_path / "report.json"

    assert smoke(deployment, "--json", str(file)) == OK

    lines = [line for line in capsys.readouterr().out.splitlines() if re.match("kept|skip", line)]
    filed = json.loads(file.read_text())
    assert len(lines) == len(PLANS[SERVING]) == len(filed["checks"])
    assert filed["schema"] == "psionic.csm.conformance_report.v1"
    assert datetime.fromisoformat(filed["created_at"]).tzinfo is not None
    assert (filed["ok"], filed["url"]) == (True, deployment.client.url)
    assert filed["expect"] == "serving"
    assert filed["counts"]["kept"] + filed["counts"]["skipped"] == len(lines)
    said = filed["deployment"]
    assert said["artifact_id"].endswith(said["artifact_digest"])
    assert said["workers"][0]["determinism_class"] == "test"
    assert said["runtime_image_ref"]
    assert filed["tool"].keys() == {"psionic_csm", "python"}
    for check in filed["checks"]:
        assert check.keys() == {"name", "outcome", "ms", "detail", "code"}
        assert isinstance(check["ms"], int)


def test_a_deployment_that_is_off_passes_as_such_alone(
    disabled: Deployment, tmp_path: Path
) -> None:
    """``--expect disabled`` holds for it, and the report has the refusal and its pending phases;
    without it, the run ends at readiness.
    """
    file = tmp_path / "report.json"

    assert smoke(disabled, "--json", str(file)) == OK
    refusal = json.loads(file.read_text())["deployment"]["refusal"]
    assert (refusal["code"], refusal["pending_phases"]) == ("no_ready_worker", ["start_a_worker"])
    assert smoke(replace(disabled, expect=SERVING)) == NOT_GENUINE


def test_a_deployment_that_serves_is_not_off(deployment: Deployment) -> None:
    """``--expect disabled`` fails for one that is ready."""
    assert smoke(replace(deployment, expect="disabled")) == NOT_GENUINE


def test_the_first_broken_promise_ends_the_run(
    deployment: Deployment, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What would have followed is listed as not run."""
    file = tmp_path / "report.json"

    assert smoke(deployment, "--json", str(file), lie=degraded) == NOT_GENUINE

    filed = json.loads(file.read_text())
    outcomes = [check["outcome"] for check in filed["checks"]]
    at = outcomes.index("broken")
    assert filed["checks"][at]["name"] == "models"
    assert set(outcomes[at + 1 :]) == {"not_run"}
    assert filed["ok"] is False
    said = capsys.readouterr()
    assert said.out.count("not_run") == len(outcomes) - at - 1
    assert said.err.startswith("error: models: ")


def test_keep_going_finds_every_broken_promise(
    deployment: Deployment, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With ``--keep-going`` all checks run, and the first failure names the exit code."""
    file = tmp_path / "report.json"

    code = smoke(deployment, "--keep-going", "--json", str(file), lie=degraded)

    checks = {check["name"]: check["outcome"] for check in json.loads(file.read_text())["checks"]}
    assert code == NOT_GENUINE
    assert checks["models"] == checks["remembers a cancel"] == "broken"
    assert "not_run" not in checks.values()
    assert "checks failed)" in capsys.readouterr().err


def test_the_report_may_go_to_standard_output(
    deployment: Deployment, capsys: pytest.CaptureFixture[str]
) -> None:
    """``--json -`` prints the report and nothing else, also of a run that fails."""
    assert smoke(deployment, "--json", "-", lie=degraded) == NOT_GENUINE

    assert json.loads(captured_json(capsys))["ok"] is False


def captured_json(capsys: pytest.CaptureFixture[str]) -> str:
    """Standard output without the gateway's own log, which shares it in this test alone."""
    out = capsys.readouterr().out
    return out[out.index("{\n") :]


def test_neither_text_nor_key_is_said(
    locked: Deployment, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not even where the deployment repeats them: in a code, in a header, in its documents."""
    file = tmp_path / "report.json"

    def telltale(said: Said) -> Said:
        if said.path.endswith("metadata"):
            document = said.document()
            document["governance"]["license_posture"] = f"for {KEY}"
            document["governance"]["runtime_image_ref"] = f"image for {KEY}"
            return said.saying(document)
        if said.status == 404 and "error" in said.document():
            document = said.document()
            document["error"]["code"] = f"{TEXTS[0]} {KEY}"
            return said.saying(document)
        return said

    code = smoke(locked, "--api-key", KEY, "--keep-going", "--json", str(file), lie=telltale)

    told = capsys.readouterr()
    said = told.out + told.err + file.read_text()
    assert code == NOT_GENUINE
    assert WITHHELD in said
    assert KEY not in said
    for text in TEXTS:
        assert text not in said


def test_a_key_may_come_from_the_environment(
    locked: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for every other command; without one, the run ends with a refusal."""
    assert smoke(locked) == REFUSED
    monkeypatch.setenv("PSIONIC_CSM_API_KEY", KEY)
    assert smoke(locked) == OK


def test_nobody_there_is_unreachable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No gateway at the address: exit code 3, and a report that says so, at once. A password in
    the address is not repeated.
    """
    file = tmp_path / "report.json"
    url = f"http://user:secret@127.0.0.1:{free_port()}"

    code = main.run(["smoke", "--url", url, "--keep-going", "--json", str(file)])

    filed = json.loads(file.read_text())
    assert code == UNREACHABLE
    assert filed["counts"]["unreachable"] == 1
    assert filed["counts"]["not_run"] == len(PLANS[SERVING]) - 1
    assert filed["deployment"]["artifact_id"] is None
    told = capsys.readouterr()
    assert "secret" not in told.out + told.err + file.read_text()


@pytest.mark.parametrize(
    "arguments", [["--expect", "nothing"], ["--timeout", "0"], ["--json"], ["--url", "ftp://x"]]
)
def test_wrong_usage(arguments: list[str]) -> None:
    """Told before anything is asked."""
    assert main.run(["smoke", *arguments]) == USAGE


def run_against(answer: Callable[[httpx.Request], httpx.Response], timeout_s: float = 5.0) -> Run:
    client = GatewayClient("http://gateway", transport=httpx.MockTransport(answer))
    return Run(Wire(client, timeout_s, sleep=lambda _: None))


def refusal(status: int, code: str, **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.Response(status, json={"error": {"code": code}}, headers=named)


def test_a_busy_deployment_is_asked_again() -> None:
    """429 with ``Retry-After`` is no answer yet."""
    answers = [refusal(429, "queue_full", retry_after="1"), httpx.Response(200, content=b"wav")]
    run = run_against(lambda _: answers.pop(0))

    assert run.wire.speak({}).body == b"wav"


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (refusal(429, "queue_full", retry_after="60"), Declined),
        (refusal(429, "queue_full"), Declined),
        (refusal(503, "draining", retry_after="1"), Declined),
        (refusal(502, "worker_lost"), Declined),
        (refusal(400, "empty_input"), Broken),
        (refusal(418, "teapot"), Broken),
        (httpx.Response(502, text="<html>"), Broken),
    ],
)
def test_what_it_means_that_nothing_was_spoken(
    answer: httpx.Response, fault: type[Exception]
) -> None:
    """A refusal that the contract allows proves nothing; any other breaks it."""
    times = iter(range(0, 100, 3))
    run = run_against(lambda _: answer, timeout_s=0.2)

    with pytest.raises(fault):
        run.wire.speak({"n": next(times)})


def stall() -> Any:
    yield b"."
    raise httpx.ReadTimeout("slow")


def cut() -> Any:
    yield b"RIFF"
    raise httpx.RemoteProtocolError("closed")


def drip() -> Any:
    while True:
        yield b"."


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (httpx.ReadTimeout("slow"), "timed out: nothing came for 0.1 s"),
        (stall, "timed out: nothing came for 0.1 s"),
        (httpx.RemoteProtocolError("closed"), "broke off"),
        (httpx.ReadError("reset"), "broke off"),
        (drip, "timed out: the answer had not ended 0.1 s after it began"),
    ],
)
def test_an_answer_that_hangs_or_breaks_off_is_a_broken_promise(answer: Any, words: str) -> None:
    """Silence, a reset, and an answer that never ends."""

    def reply(_: httpx.Request) -> httpx.Response:
        if isinstance(answer, Exception):
            raise answer
        return httpx.Response(200, content=answer())

    verdict = verdict_on(
        Check("live", lambda run: str(run.wire.get("/health"))), run_against(reply, 0.1)
    )

    assert verdict.outcome == report.BROKEN
    assert words in verdict.detail


@pytest.mark.parametrize(
    ("body", "kept", "outcome", "words"),
    [
        (cut, "generation_timeout", report.REFUSED, "refused with generation_timeout"),
        (cut, "empty_input", report.BROKEN, "it ended with the error"),
        (cut, None, report.BROKEN, "broke off"),
        (cut, ..., report.BROKEN, "broke off"),
        (stall, "generation_timeout", report.BROKEN, "timed out: nothing came for 0.1 s"),
    ],
)
def test_why_a_raw_stream_broke_off_is_at_its_result(
    body: Any, kept: Any, outcome: str, words: str
) -> None:
    """A stream without events can't say its failure's code, so that is looked up: as for any other
    stream, one that the contract allows proves nothing. Our own patience is no failure of theirs.
    """

    def reply(request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            return httpx.Response(200, content=body())
        if kept is ...:
            return refusal(404, "result_not_found")
        return httpx.Response(200, json={"terminal": {"failure_code": kept}})

    run = run_against(reply, 0.1)
    run.metadata = {"voice_profiles": [{"id": "v"}], "artifact_descriptor": {"artifact_id": "a"}}
    verdict = verdict_on(Check("stream audio", streams.audio), run)

    assert (verdict.name, verdict.outcome) == ("stream audio", outcome)
    assert words in verdict.detail


def test_a_refusal_does_not_count_as_broken() -> None:
    """It has an outcome and a code of its own."""
    check = Check("x", lambda run: str(run.spoken))
    run = run_against(lambda _: refusal(503, "no_ready_worker", retry_after="1"))

    found = list(verdicts([check, check], run, keep_going=False))

    assert [each.outcome for each in found] == [report.REFUSED, report.NOT_RUN]
    assert found[0].code == "no_ready_worker"


def test_ids_are_this_run_s_own() -> None:
    """Every run has a namespace, so that no two share an id."""
    one, other = (run_against(lambda _: httpx.Response(404)) for _ in range(2))

    assert one.id("x") != other.id("x")
    assert one.id("x").startswith("smoke-")
    assert re.fullmatch(r"[A-Za-z0-9._:-]{1,128}", one.id("x" * 40))


def test_what_is_shown_is_short_and_printable() -> None:
    """Whatever a deployment says, a line of the report stays a line."""
    assert "\n" not in shown("a\nb\x1b[31m")
    assert len(shown("x" * 1000)) <= MOST_SHOWN + 3


@pytest.mark.parametrize(
    "said",
    [
        "x" * (MOST_SHOWN - 8) + ODD_KEY,
        ["Bearer " + ODD_KEY],
        {"key": {"nested": ODD_KEY}},
        {ODD_KEY: 1},
        ("head", ODD_KEY),
        json.dumps({"key": ODD_KEY}),
        json.dumps({"key": ODD_KEY}).encode(),
    ],
)
def test_no_part_of_a_key_is_shown(said: Any) -> None:
    """A key is looked for before a value is cut off or escaped, at any depth of it."""
    with pytest.raises(Broken) as broken:
        same("the header", "other", said)

    told = broken.value.remark.told([ODD_KEY])
    assert WITHHELD in told
    assert ODD_KEY[:6] not in told
    assert told.startswith("the header is ")


def test_a_key_of_one_letter_takes_no_names_away(
    deployment: Deployment, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is withheld are values that the deployment gave, and none of the report's own words."""
    file = tmp_path / "report.json"

    assert smoke(deployment, "--api-key", "e", "--json", str(file)) == NOT_GENUINE

    filed = json.loads(file.read_text())
    assert filed.keys() >= {"schema", "created_at", "expect", "counts", "tool", "deployment"}
    assert filed["schema"] == "psionic.csm.conformance_report.v1"
    assert filed["counts"].keys() == set(report.OUTCOMES)
    assert filed["deployment"]["workers"][0].keys() == set(report.WORKER_FACTS)
    checks = {check["name"]: check for check in filed["checks"]}
    assert checks.keys() == {check.name for check in PLANS[SERVING]}
    assert checks["metadata"]["outcome"] == "kept"
    assert "without a key is HTTP" in checks["keys"]["detail"]
    assert "error: keys: " in capsys.readouterr().err


def test_a_deployment_s_names_are_withheld_with_their_values() -> None:
    """A document of the deployment's own in which a name holds the key is withheld whole."""
    assert withheld({"a": {f"x{KEY}": 1, f"y{KEY}": 2}, "b": 3}, [KEY]) == {"a": WITHHELD, "b": 3}


def event(kind: str, code: str | None = None) -> Event:
    return Event(kind, {"error": {"code": code}} if code else {})


@pytest.mark.parametrize(
    ("events", "fault", "words"),
    [
        ([event("audio"), event("error", "generation_timeout")], Declined, "generation_timeout"),
        ([event("error", "worker_lost")], Declined, "worker_lost"),
        ([event("audio"), event("error", "empty_input")], Broken, "it ended with the error"),
        ([event("error", "worker_lost"), event("terminal")], Broken, "beside its end"),
        ([event("terminal"), event("error", "worker_lost")], Broken, "beside its end"),
        ([event("error", "worker_lost"), event("audio")], Broken, "beside its end"),
        ([event("audio")], Broken, "the number of terminals"),
    ],
)
def test_what_it_means_that_a_stream_failed(
    events: list[Event], fault: type[Exception], words: str
) -> None:
    """As for an answer in one piece: a failure that the contract allows proves nothing, with its
    code; any other, or one beside another end, breaks it.
    """
    with pytest.raises(fault, match=words):
        closed(events, starts=False)
