"""The console in a real browser, over real processes whose engines compute nothing."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import redis

from benchmarks.target import PacedPlan
from cli.bench_stack import paced_stack
from cli.stack import Stack
from scheduler.carrier import Carrier
from scheduler.queue import WorkQueue
from shared.settings import QueueSettings
from tests.e2e.browser import Page, browsing, find_browser

pytestmark = pytest.mark.e2e

KEY = "the-key-of-one-caller"
LIVE = "document.getElementById('freshness').textContent === 'live'"
SPOKEN = "!document.getElementById('result').hidden && !document.getElementById('speak').disabled"


@pytest.fixture(scope="module")
def browser() -> str:
    found = find_browser()
    if found is None:
        if "chromium" in os.environ.get("CI_TOOLS", ""):
            pytest.fail("CI_TOOLS names chromium, and it isn't on the PATH")
        pytest.skip("no chromium on the PATH (Debian: apt install chromium)")
    return found


@pytest.fixture(scope="module")
def stack(browser: str) -> Iterator[Stack]:
    with paced_stack(PacedPlan(workers=2, lanes=4, step_ms=40)) as stack:
        yield stack


@pytest.fixture(scope="module")
def shared_page(browser: str, stack: Stack) -> Iterator[Page]:
    with browsing(browser) as page:
        yield page


@pytest.fixture
def page(shared_page: Page, stack: Stack) -> Iterator[Page]:
    """The console, opened anew, with live numbers; whatever it does, it may not complain."""
    shared_page.size(1280, 900)
    shared_page.open(f"{stack.url}/console")
    shared_page.until(LIVE)
    yield shared_page
    assert shared_page.complaints == []


def get(stack: Stack, path: str) -> dict[str, Any]:
    reply = httpx.get(stack.url + path, trust_env=False, timeout=20)
    document: dict[str, Any] = reply.raise_for_status().json()
    return document


def test_the_numbers_are_those_of_the_service(page: Page, stack: Stack) -> None:
    """Readiness, lanes, every worker with its state, and the artifact that is served."""
    load = get(stack, "/psionic/csm/load")

    assert page.text("#readiness") == "ready"
    assert page.text("#flight") == "0 / 8"
    assert page.text("#redis") == f"{load['redis_memory_ratio']:.0%}".replace("%", " %")
    table = page.text("#workers")
    for worker in load["workers"]:
        assert worker["worker_id"] in table
    served = load["workers"][0]["artifact_id"].partition("sha256:")[0]
    page.until(f"document.getElementById('service').innerText.includes({json.dumps(served)})")
    assert "missing" not in page.text("#service")
    assert "license_review" in page.text("#service")


def test_what_the_artifact_cannot_say_is_told_beforehand(page: Page) -> None:
    """Its note is there, and as one types, the words that it doesn't know are named."""
    page.until("!document.getElementById('limits').hidden")
    page.type("#text", "Hello, quantum\u2019s HELLO quarks: don't.")
    page.run("document.getElementById('text').dispatchEvent(new Event('input'))")

    assert "385 English words" in page.text("#limits")
    assert page.text("#unknown") == "It does not know: quantum's, quarks"


def test_no_worker_is_said_with_what_to_do(page: Page, stack: Stack) -> None:
    """Where none is alive, the page says what that means and how to start one."""
    found = (stack.supervisor.pid(name) for name in ("worker-1", "worker-2"))
    pids = [pid for pid in found if pid is not None]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        page.until("!document.getElementById('no-workers').hidden")
        said = (page.text("#no-workers"), page.text("#readiness"))
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    page.until("document.getElementById('readiness').innerText === 'ready'")

    assert "every speech request is refused" in said[0]
    assert "python -m gpu_worker" in said[0]
    assert "no_ready_worker" in said[1]


def test_a_text_is_spoken(page: Page, stack: Stack) -> None:
    """Its first audio is timed, its audio can be played, and its facts are the service's."""
    page.type("#text", "Hello there.")
    page.type("#seed", "7")

    page.click("#speak")
    page.until(SPOKEN)

    assert "first audio after" in page.text("#progress")
    request = page.run("document.getElementById('evidence').dataset.request")
    terminal = get(stack, f"/psionic/csm/speech/{request}")["terminal"]
    result = page.text("#result")
    for fact in (request, "\n7\n", terminal["wav_pcm16_digest"], terminal["worker_id"]):
        assert fact in result
    page.until("document.getElementById('player').duration > 0")
    played_ms = 1000 * float(page.run("document.getElementById('player').duration"))
    assert abs(played_ms - terminal["output_duration_ms"]) < 40
    page.run("document.getElementById('evidence').open = true")
    page.until("document.getElementById('evidence-text').textContent.startsWith('{')")
    evidence = json.loads(page.run("document.getElementById('evidence-text').textContent"))
    assert evidence["terminal"] == terminal


def test_speech_can_be_cancelled(page: Page, stack: Stack) -> None:
    """The button stops the work itself, and what was heard by then can still be played."""
    page.type("#text", "This goes on long enough to be interrupted. " * 6)
    page.click("#speak")
    page.until("document.getElementById('progress').innerText.includes('so far')")

    page.click("#cancel")
    page.until("!document.getElementById('speak').disabled")

    assert "cancelled" in page.text("#refusal")
    request = page.run("document.getElementById('evidence').dataset.request")
    assert get(stack, f"/psionic/csm/speech/{request}")["terminal"]["finish_reason"] == "cancelled"
    assert page.run("document.getElementById('player').hidden") is False


def heard_after_cancel(page: Page, answer: str) -> None:
    """Speak, and press Cancel once there is audio, where a cancel is answered so. What is started
    after the click is counted in ``after``.
    """
    page.run(f"""(() => {{
        const [ask, start] = [window.fetch, AudioBufferSourceNode.prototype.start];
        window.fetch = (path, options) =>
            String(path).includes("cancellations") ? {answer} : ask(path, options);
        AudioBufferSourceNode.prototype.start = function (...when) {{
            if (window.after !== undefined) window.after += 1;
            return start.apply(this, when);
        }};
        document.getElementById("cancel")
            .addEventListener("click", () => (window.after = 0), {{ capture: true }});
    }})()""")
    page.type("#text", "This goes on long enough to be interrupted. " * 6)
    page.click("#speak")
    page.until("document.getElementById('progress').innerText.includes('so far')")
    page.click("#cancel")


def test_nothing_plays_once_cancel_was_pressed(page: Page) -> None:
    """Frames that still come, where the cancel is lost, are kept for the player and not heard."""
    heard_after_cancel(page, "new Promise(() => {})")
    said = page.text("#progress")
    page.until(SPOKEN)

    assert page.run("window.after") == 0
    assert said == "cancelling"
    page.until("document.getElementById('player').duration > 2")


def test_a_refused_cancel_leaves_at_once(page: Page) -> None:
    """Who isn't heard hangs up, without the time that a cancel has to take effect."""
    page.run("window.setTimeout = () => 0")  # that time never passes
    heard_after_cancel(page, "Promise.resolve(new Response('{}', { status: 503 }))")
    page.until("!document.getElementById('speak').disabled")

    assert page.text("#progress") == "cancelled"
    assert page.run("document.getElementById('result').hidden") is True
    assert page.run("window.after") == 0


def test_a_refusal_shows_its_code_and_what_to_do(page: Page) -> None:
    """The envelope's code and message, and that the same request is refused again."""
    page.type("#text", "x " * 400)

    page.click("#speak")
    page.until("!document.getElementById('refusal').hidden")

    assert page.text("#refusal-code") == "input_exceeds_budget"
    assert "refused again" in page.text("#refusal-hint")
    assert page.run("document.getElementById('speak').disabled") is False


def test_what_others_write_is_shown_as_text(page: Page, stack: Stack) -> None:
    """A worker's name and reasons that look like markup are letters on the page."""
    name = "<img src=x onerror=alert(1)>\u202e<b>w</b>"
    refusal = {"code": "<i>", "reason": "<script>alert(2)</script>", "pending_phases": []}
    settings = QueueSettings.from_env({"PSIONIC_CSM_NAMESPACE": stack.namespace})
    queue = get(stack, "/psionic/csm/load")["artifacts"][0]["queue"]
    with redis.Redis.from_url(stack.redis_url) as client:
        carrier = Carrier(client, stack.namespace, queue)
        work = WorkQueue(client, settings, carrier, queue, "hostile")
        said = {"worker_id": name, "state": "unavailable", "refusal": refusal, "utilization": None}
        for _ in range(200):
            work.heartbeat(said, lanes=0)
            if page.run("document.getElementById('workers').innerText.includes('onerror')"):
                break
            page.run("new Promise((done) => setTimeout(done, 250))")
        cells = page.run("document.getElementById('workers').textContent")
        markup = page.run("document.querySelectorAll('main img, main b, main i').length")
        work.farewell()

    assert name in cells
    assert "<i>: <script>alert(2)</script>" in cells
    assert markup == 0


def test_old_numbers_are_marked(page: Page, stack: Stack) -> None:
    """While the gateway stands still they are STALE and grey; when it goes on, they are live."""
    pid = stack.supervisor.pid("gateway")
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        page.until("document.getElementById('freshness').textContent.startsWith('STALE')")
        page.until("!document.getElementById('notice').hidden")
        marked = page.run("document.body.classList.contains('stale')")
    finally:
        os.kill(pid, signal.SIGCONT)
    page.until(LIVE)

    assert marked is True
    assert page.run("document.body.classList.contains('stale')") is False
    assert page.run("document.getElementById('notice').hidden") is True


@pytest.mark.parametrize("dark", [False, True])
def test_the_page_fits_a_phone(page: Page, dark: bool) -> None:
    """Nothing sticks out to the side, with a result on it, too, and controls have names."""
    page.size(360, 740, dark=dark)
    page.type("#text", "Hello there.")
    page.click("#speak")
    page.until(SPOKEN)

    assert page.run("document.documentElement.scrollWidth <= window.innerWidth") is True
    unnamed = page.run(
        "Array.from(document.querySelectorAll('input, select, textarea'))"
        ".filter((field) => field.labels.length === 0).length"
    )
    assert unnamed == 0


def test_a_key_is_asked_for_and_kept_in_memory_alone(browser: str) -> None:
    """Without a key there is readiness and a notice; a wrong one is said to be wrong."""
    plan = PacedPlan(lanes=2, step_ms=20, settings={"PSIONIC_CSM_API_KEYS": KEY})
    with paced_stack(plan) as stack, browsing(browser) as page:
        page.open(f"{stack.url}/console")
        page.until("!document.getElementById('notice').hidden")
        without = (page.text("#readiness"), page.text("#notice"), page.text("#depth"))
        page.type("#key", "some-other-key-of-nobody")
        page.click("#key-form button")
        page.until("document.getElementById('notice').innerText.includes('does not take')")
        page.type("#key", KEY)
        page.click("#key-form button")
        page.until(LIVE)
        page.click("#speak")
        page.until(SPOKEN)
        kept = page.run("JSON.stringify([document.cookie, {...localStorage}, {...sessionStorage}])")
        page.open(f"{stack.url}/console")
        page.until("!document.getElementById('notice').hidden")
        again = page.run("document.getElementById('key').value")
        complaints = page.complaints

    assert without[0] == "ready"
    assert "wants an API key" in without[1]
    assert without[2] == "\u2013"
    assert kept == '["",{},{}]'
    assert again == ""
    assert complaints == []
