"""What a person can do about a code: the command, option or setting to use."""

from __future__ import annotations

import shlex
from typing import Final

_MISSING: Final = (
    "`psionic-csm artifacts verify {artifact}` says which file is missing; "
    "docs/artifacts.md says how to get it"
)
_DAMAGED: Final = (
    "`psionic-csm artifacts verify {artifact}` says which file differs from the manifest; "
    "get that one again (the demo: `psionic-csm artifacts build-demo`)"
)
_LOADING: Final = (
    "`psionic-csm artifacts verify {artifact}` rules out damaged files; the worker's log has the "
    "cause (often too little memory: PSIONIC_CSM_LANES, PSIONIC_CSM_DTYPE=bfloat16)"
)
VOICES: Final = (
    "put back the voices.json that came with this artifact's manifest.json "
    "(the demo: `psionic-csm artifacts build-demo`)"
)
"""For whoever verifies an artifact and finds its voices missing or others."""
_VOICE: Final = (
    "`psionic-csm artifacts verify {artifact}` checks the voices' files; voices.json must have "
    "the digests of this very artifact"
)

WORKER: Final = {
    "runtime_disabled": "set PSIONIC_CSM_RUNTIME=on, or leave it out",
    "unsupported_backend": "set PSIONIC_CSM_BACKEND to cpu, cuda, cuda:N or mps",
    "accelerator_unavailable": "see whether the driver shows the device (nvidia-smi), or set "
    "PSIONIC_CSM_BACKEND=cpu",
    "artifact_unavailable": "`psionic-csm artifacts list` shows what is here; --artifact or "
    "PSIONIC_CSM_ARTIFACTS names the directory",
    "llama_tokenizer_unavailable": _MISSING,
    "csm_config_unavailable": _MISSING,
    "csm_model_unavailable": _MISSING,
    "mimi_model_unavailable": _MISSING,
    "csm_config_invalid": _DAMAGED,
    "csm_runtime_load_failed": _LOADING,
    "csm_cpu_fallback_load_failed": _LOADING,
    "voice_profile_source_unavailable": _MISSING,
    "voice_profile_descriptor_unavailable": _VOICE,
    "voice_profile_digest_mismatch": _VOICE,
    "prompt_profile_context_unavailable": "this voice has no prompt here: choose another with "
    "--voice, or leave context_policy out",
}
"""Why a worker can't serve, and what to do on its machine."""

CALLER: Final = {
    "unauthorized": "give the key with --api-key or PSIONIC_CSM_API_KEY",
    "no_ready_worker": "`psionic-csm status` shows the workers; `python -m gpu_worker` starts one",
    "runtime_unavailable": "the workers are loading; `psionic-csm status` shows when one is ready",
    "queue_unavailable": "the gateway can't use its Redis: PSIONIC_CSM_REDIS_URL there",
    "queue_memory_low": "the gateway's Redis is nearly full: raise its maxmemory",
    "queue_full": "`psionic-csm status` shows the queue; more workers empty it sooner",
    "deadline_unmeetable": "--timeout-ms gives it more time",
    "queue_timeout": "--timeout-ms gives it more time; `psionic-csm status` shows the queue",
    "generation_timeout": "--timeout-ms gives it more time, --max-length-ms asks for less",
    "input_exceeds_budget": "--max-length-ms gives it more time to speak",
    "request_id_conflict": "this id means another request: leave --request-id out, or choose anew",
    "voice_profile_unavailable": "`psionic-csm voices` lists them",
    "voice_profile_unapproved": "`psionic-csm voices` shows who is approved",
    "result_not_found": "results are kept for some minutes only, and under the caller's own key",
    "route_not_found": "--url takes the gateway's address alone, as http://127.0.0.1:8081",
}
"""What a caller can do about a refusal."""


def of_worker(code: str, artifact: str) -> str | None:
    """For the machine of the worker that gives this code; ``artifact`` as the command takes it."""
    return WORKER[code].format(artifact=shlex.quote(artifact)) if code in WORKER else None


def of_caller(code: str) -> str | None:
    """For whoever is refused with this code."""
    return CALLER.get(code) or of_worker(code, "DIRECTORY")
