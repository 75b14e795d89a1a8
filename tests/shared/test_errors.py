"""The table of codes is complete and consistent."""

from __future__ import annotations

import pytest

from shared.errors import CODES, PENDING_PHASES, SpeechError

BY_STATUS = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
    405: "invalid_request_error",
    409: "conflict_error",
    413: "invalid_request_error",
    415: "invalid_request_error",
    422: "invalid_request_error",
    429: "overloaded_error",
    500: "server_error",
    502: "generation_error",
    503: "backend_unavailable",
    504: "timeout_error",
}


@pytest.mark.parametrize("code", sorted(CODES))
def test_a_codes_type_and_retryability_follow_its_status(code: str) -> None:
    """Clients may branch on status or on type and come to the same place."""
    spec = CODES[code]

    assert spec.type == BY_STATUS[spec.status]
    assert spec.retryable == (spec.status == 429 or spec.status >= 500)


def test_every_load_refusal_says_what_to_do() -> None:
    """A worker that can't serve names at least one phase that an operator has to complete."""
    for code, phases in PENDING_PHASES.items():
        assert code in CODES
        assert phases


@pytest.mark.parametrize(
    ("code", "phases"),
    [
        ("runtime_disabled", ["enable_csm_runtime"]),
        ("unsupported_backend", ["choose_supported_backend"]),
        (
            "accelerator_unavailable",
            ["deploy_gpu_runtime_or_enable_explicit_cpu_fallback"],
        ),
        ("llama_tokenizer_unavailable", ["hydrate_gated_hf_artifacts"]),
        ("csm_config_unavailable", ["hydrate_gated_hf_artifacts"]),
        ("csm_config_invalid", ["refresh_csm_artifact_cache"]),
        ("csm_model_unavailable", ["hydrate_gated_hf_artifacts"]),
        ("mimi_model_unavailable", ["hydrate_gated_hf_artifacts"]),
        (
            "csm_runtime_load_failed",
            ["refresh_csm_artifact_cache", "refresh_mimi_artifact_cache"],
        ),
        (
            "csm_cpu_fallback_load_failed",
            ["refresh_csm_artifact_cache", "refresh_mimi_artifact_cache"],
        ),
    ],
)
def test_phases_are_those_that_clients_know(code: str, phases: list[str]) -> None:
    """Names that dashboards compare with."""
    assert list(PENDING_PHASES[code]) == phases
    assert CODES[code].status == 503


def test_an_error_carries_its_spec() -> None:
    """An error knows its status, type and retryability from its code."""
    error = SpeechError("queue_full", "full", retry_after_s=1.5)

    assert (error.status, error.type, error.retryable) == (429, "overloaded_error", True)
    assert str(error) == "queue_full: full"


def test_an_unknown_code_is_a_defect() -> None:
    """A code that is not in the table can't be raised."""
    with pytest.raises(KeyError):
        SpeechError("made_up", "no")
