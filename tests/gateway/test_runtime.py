"""What several workers add up to."""

from __future__ import annotations

from typing import Any

import pytest

from gateway import runtime


def worker(state: str = "ready", backend: str = "cuda", **more: Any) -> dict[str, Any]:
    return {
        "state": state,
        "artifact_id": "a",
        "requested_backend": backend,
        "served_backend": backend if state == "ready" else None,
        "execution_engine": f"torch_csm_{backend}",
        **more,
    }


def refused(code: str) -> dict[str, Any]:
    return worker("unavailable", refusal={"code": code, "reason": "r", "pending_phases": ["p"]})


def test_the_least_accelerated_ready_worker_speaks_for_all() -> None:
    """One CPU worker among CUDA workers shows."""
    summary = runtime.summarise([worker(), worker(backend="cpu"), worker(backend="mps")])

    assert (summary["state"], summary["backend"]) == ("ready", "cpu")
    assert runtime.served(summary).execution_engine == "torch_csm_cpu"


def test_ready_goes_before_loading_and_loading_before_refusals() -> None:
    """Any ready worker makes the runtime ready; else any loading one makes it loading."""
    refusing, loading = refused("csm_config_invalid"), worker("loading")

    assert runtime.summarise([refusing, loading, worker()])["state"] == "ready"
    assert runtime.summarise([refusing, loading])["state"] == "loading"
    assert runtime.summarise([refusing])["state"] == "unavailable"


def test_the_commonest_refusal_is_published() -> None:
    """Of several refusals, the one that most workers give."""
    codes = ("csm_config_invalid", "csm_model_unavailable", "csm_model_unavailable")

    assert (
        runtime.summarise([refused(code) for code in codes])["refusal"]["code"]
        == "csm_model_unavailable"
    )


def test_a_summary_needs_nothing_but_a_state() -> None:
    """A worker that leaves out what it doesn't know is summed up all the same."""
    summary = runtime.summarise([{"state": "ready"}])

    assert (summary["backend"], summary["gpu_model"]) == ("none", "none")
    assert summary["load_latency_ms"] is None


@pytest.mark.parametrize(
    ("workers", "code"),
    [
        ([], "no_ready_worker"),
        ([worker("loading"), refused("csm_config_invalid")], "runtime_unavailable"),
        ([refused("csm_config_invalid")], "csm_config_invalid"),
        ([refused("csm_config_invalid"), worker("draining")], "no_ready_worker"),
        ([worker("draining"), worker("draining")], "draining"),
        ([refused("something_new")], "no_ready_worker"),
    ],
)
def test_why_nobody_takes_a_job(workers: list[dict[str, Any]], code: str) -> None:
    """Loading, the commonest refusal when all refuse, draining when all drain, else nobody."""
    assert runtime.refusal_code(workers) == code
