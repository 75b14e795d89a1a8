"""Metrics of a deployment of real processes: they agree with each other and with the answers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from cli.bench_stack import PacedPlan, paced_stack
from cli.redis_server import free_port
from cli.stack import Stack
from shared.paths import SPEECH
from tests.e2e.stacks import demo_cache, noise
from tests.exposition import promtool, samples

__all__ = ["demo_cache"]

pytestmark = [pytest.mark.e2e, pytest.mark.redis]

WAIT_S = 30.0
FRAMES = 10
REQUESTS = 4


@pytest.fixture(scope="module")
def base_port() -> int:
    """One for the scheduler, with one behind it for each worker."""
    return free_port(3)


@pytest.fixture(scope="module")
def stack(base_port: int, demo_cache: Path) -> Iterator[Stack]:
    settings = {"PSIONIC_CSM_METRICS_PORT": str(base_port)}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in noise(demo_cache).items():
            patch.setenv(name, value)
        plan = PacedPlan(workers=2, lanes=2, step_ms=5, gateways=2, settings=settings)
        with paced_stack(plan) as stack:
            yield stack


def scrape(url: str) -> bytes:
    answer = httpx.get(f"{url}/metrics", timeout=WAIT_S, trust_env=False)
    assert answer.status_code == 200
    return answer.content


def sum_of(told: dict[tuple[str, ...], float], name: str) -> float:
    return sum(n for key, n in told.items() if key[0] == name)


def test_the_numbers_agree(stack: Stack, base_port: int) -> None:
    """Gateways count the requests, the queue the jobs, workers the frames: it is one story, told by
    every process, and promtool finds no fault with any of them."""
    for number in range(REQUESTS):
        answer = httpx.post(
            f"{stack.urls[number % 2]}/psionic/csm/speech",
            json={"input": "Hello.", "max_audio_length_ms": 80 * FRAMES},
            timeout=WAIT_S,
            trust_env=False,
        )
        assert answer.status_code == 200

    side = [f"http://127.0.0.1:{base_port + offset}" for offset in range(3)]
    deadline = time.monotonic() + WAIT_S
    while True:
        texts = [scrape(url) for url in (*stack.urls, *side)]
        told = [samples(text) for text in texts]
        frames = sum(each.get(("psionic_csm_frames_total",), 0) for each in told[3:])
        ends = [sum_of(each, "psionic_csm_jobs_ended_total") for each in told[:3]]
        answered = sum(
            each.get(("psionic_csm_requests_total", "ok", SPEECH, "ok"), 0) for each in told[:2]
        )
        if (frames, ends, answered) == (REQUESTS * FRAMES, [REQUESTS] * 3, REQUESTS):
            break
        assert time.monotonic() < deadline, (frames, ends, answered)
        time.sleep(0.1)

    for each in told[:3]:
        queue = [(key, n) for key, n in each.items() if key[0] == "psionic_csm_jobs_admitted_total"]
        assert [n for _, n in queue] == [REQUESTS]
        name = queue[0][0][1]
        assert each["psionic_csm_jobs_ended_total", name, "length"] == REQUESTS
        assert each["psionic_csm_queue_lanes", name] == 4
        assert each["psionic_csm_workers_alive", "ready"] == 2
        assert each["psionic_csm_gateways_alive",] == 2
    for each in told[3:]:
        assert each["psionic_csm_worker_state", "ready"] == 1
        assert each["psionic_csm_batch_size_sum",] == each["psionic_csm_frames_total",]
    for text in texts:
        assert promtool("check", "metrics", given=text) == ""


def test_probes_answer_beside_the_metrics(stack: Stack, base_port: int) -> None:
    """Scheduler and workers say that they live and are ready, on the same port."""
    answers = [
        httpx.get(f"http://127.0.0.1:{base_port + offset}{path}", trust_env=False).status_code
        for offset in range(3)
        for path in ("/health/live", "/health/ready")
    ]

    assert answers == [200] * 6
