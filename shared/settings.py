"""The settings of each process, read once from its environment variables into frozen dataclasses.

A value that can't be used stops the process at start with the variable's name and what it takes,
and so does a name that begins like ours and is none (``shared.environment``). Nothing is ignored,
nothing falls back in silence.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from shared.cores import threads_per_worker
from shared.environment import (
    Asked,
    Env,
    SettingsError,
    choice,
    comma_list,
    flag,
    integer,
    label,
    refuse_unknown,
    secrets,
    text,
)
from shared.speech_rate import LEAD_IN_MS
from shared.tiers import Tier
from shared.variables import (
    API_KEYS,
    CACHE,
    DRAIN_GRACE_MS,
    HOST,
    LANES,
    MAX_CONNECTIONS,
    MAX_QUEUE_DEPTH,
    MAX_WAITING_PER_PRINCIPAL,
    METRICS_PORT,
    MIN_QUEUE_DEPTH,
    OTLP_ENDPOINT,
    PORT,
    TORCH_THREADS,
    read_artifact_dirs,
    read_caller_key,
    read_hub_roots,
    read_namespace,
    read_redis_url,
    read_tier,
)
from shared.wav import FRAME_MS

RUNTIME_IMAGE_UNSET: Final = "not_configured_local_runtime"
DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 8081
LOG_LEVELS: Final = ("debug", "info", "warning", "error")
LOAD_MODES: Final = {
    "sync": "sync",
    "background": "background",
    "async": "background",
    "deferred": "background",
}

DTYPES: Final = {"auto": None, "float32": "float32", "bfloat16": "bfloat16"}


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """The queue's rules; the same for every process of a deployment. Times in milliseconds."""

    redis_url: str
    namespace: str
    lease_ms: int
    renew_ms: int
    listener_ttl_ms: int
    listener_renew_ms: int
    cancel_memory_ms: int
    result_ttl_ms: int
    metadata_ttl_ms: int
    retained_bytes: int
    max_attempts: int
    reap_interval_ms: int
    min_queue_depth: int
    queue_depth_per_lane: int
    max_queue_depth: int
    max_waiting_per_principal: int

    @property
    def ending(self) -> tuple[int, int, int]:
        """What every script that may end a job is told: for how long, and how much, is kept."""
        return self.result_ttl_ms, self.metadata_ttl_ms, self.retained_bytes

    @classmethod
    def from_env(cls, env: Env = os.environ) -> QueueSettings:
        refuse_unknown(env, known_names)
        tier = read_tier(env)
        lease_ms = integer(env, "PSIONIC_CSM_LEASE_MS", 3000, 500, 60_000)
        listener_ttl_ms = integer(env, "PSIONIC_CSM_LISTENER_TTL_MS", 6000, 1000, 60_000)
        result_ttl_ms = integer(env, "PSIONIC_CSM_RESULT_TTL_MS", 60_000, 1000, 3_600_000)
        max_queue_depth = integer(env, MAX_QUEUE_DEPTH, tier.max_queue_depth, 1, 100_000)
        return cls(
            redis_url=read_redis_url(env) or "redis://127.0.0.1:6379/0",
            namespace=read_namespace(env),
            lease_ms=lease_ms,
            renew_ms=integer(
                env, "PSIONIC_CSM_RENEW_MS", min(500, lease_ms // 4), 50, lease_ms // 2
            ),
            listener_ttl_ms=listener_ttl_ms,
            listener_renew_ms=integer(
                env,
                "PSIONIC_CSM_LISTENER_RENEW_MS",
                min(2000, listener_ttl_ms // 3),
                100,
                min(20_000, listener_ttl_ms // 2),
            ),
            cancel_memory_ms=integer(env, "PSIONIC_CSM_CANCEL_MEMORY_MS", 60_000, 1000, 3_600_000),
            result_ttl_ms=result_ttl_ms,
            metadata_ttl_ms=integer(
                env,
                "PSIONIC_CSM_METADATA_TTL_MS",
                max(600_000, result_ttl_ms),
                result_ttl_ms,
                86_400_000,
            ),
            retained_bytes=integer(env, "PSIONIC_CSM_RETAINED_BYTES", 256 << 20, 1 << 20, 1 << 40),
            max_attempts=integer(env, "PSIONIC_CSM_MAX_ATTEMPTS", 2, 1, 10),
            reap_interval_ms=integer(env, "PSIONIC_CSM_REAP_INTERVAL_MS", 1000, 50, 60_000),
            min_queue_depth=integer(
                env, MIN_QUEUE_DEPTH, min(16, max_queue_depth), 1, max_queue_depth
            ),
            queue_depth_per_lane=integer(env, "PSIONIC_CSM_QUEUE_DEPTH_PER_LANE", 4, 1, 1000),
            max_queue_depth=max_queue_depth,
            max_waiting_per_principal=integer(
                env,
                MAX_WAITING_PER_PRINCIPAL,
                tier.max_waiting_per_principal,
                1,
                100_000,
            ),
        )


@dataclass(frozen=True, slots=True)
class SidePortSettings:
    """Where a process that serves no callers answers scrapers and probes; port 0: nowhere."""

    host: str
    port: int

    @classmethod
    def from_env(cls, env: Env = os.environ) -> SidePortSettings:
        return cls(
            host=text(env, "PSIONIC_CSM_METRICS_HOST", DEFAULT_HOST),
            port=integer(env, METRICS_PORT, 0, 0, 65_535),
        )


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """One gateway process."""

    queue: QueueSettings
    tier: Tier
    host: str
    port: int
    model_id: str
    model_aliases: tuple[str, ...]
    artifact_dirs: tuple[Path, ...]
    api_keys: tuple[str, ...]
    runtime_image_ref: str
    drain_grace_ms: int
    max_connections: int
    otlp_endpoint: str | None
    send_stall_ms: int
    log_level: str

    @classmethod
    def from_env(cls, env: Env = os.environ) -> GatewaySettings:
        tier = read_tier(env)
        api_keys = secrets(env, API_KEYS)
        if not api_keys and not tier.allows_open_access:
            raise SettingsError(
                API_KEYS,
                f"at least one key in tier {tier.name!r} (only tier 'local' may run open)",
            )
        return cls(
            queue=QueueSettings.from_env(env),
            tier=tier,
            host=text(env, HOST, DEFAULT_HOST),
            port=integer(env, PORT, DEFAULT_PORT, 0, 65_535),
            model_id=label(env, "PSIONIC_CSM_MODEL_ID", "sesame/csm-1b"),
            model_aliases=comma_list(env, "PSIONIC_CSM_MODEL_ALIASES"),
            artifact_dirs=read_artifact_dirs(env),
            api_keys=api_keys,
            runtime_image_ref=label(env, "PSIONIC_CSM_RUNTIME_IMAGE_REF", RUNTIME_IMAGE_UNSET),
            drain_grace_ms=integer(env, DRAIN_GRACE_MS, 25_000, 0, 600_000),
            max_connections=integer(env, MAX_CONNECTIONS, 2048, 1, 1_000_000),
            otlp_endpoint=_otlp_endpoint(env),
            send_stall_ms=integer(env, "PSIONIC_CSM_SEND_STALL_MS", 30_000, 100, 600_000),
            log_level=_log_level(env),
        )


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """One GPU worker process, which serves one artifact."""

    queue: QueueSettings
    artifact_dir: Path | None
    hub_roots: tuple[Path, ...]
    runtime_enabled: bool
    backend: str
    startup_load_mode: str
    cpu_fallback: bool
    gpu_model_label: str
    runtime_image_ref: str
    dtype: str | None
    lanes: int | None
    prefill_chunk: int
    silence_stop_ms: int
    torch_threads: int
    drain_grace_ms: int
    metrics: SidePortSettings
    otlp_endpoint: str | None
    log_level: str

    @property
    def silence_stop_frames(self) -> int:
        """After so many near-silent frames in a row an answer ends; 0: never."""
        return -(-self.silence_stop_ms // FRAME_MS)

    @classmethod
    def from_env(cls, env: Env = os.environ) -> WorkerSettings:
        dirs = read_artifact_dirs(env)
        lanes = env.get(LANES, "").strip()
        return cls(
            queue=QueueSettings.from_env(env),
            artifact_dir=dirs[0] if dirs else None,
            hub_roots=read_hub_roots(env),
            runtime_enabled=flag(env, "PSIONIC_CSM_RUNTIME", True),
            backend=text(env, "PSIONIC_CSM_BACKEND", "cpu"),
            startup_load_mode=LOAD_MODES[
                choice(env, "PSIONIC_CSM_STARTUP_LOAD_MODE", "sync", LOAD_MODES)
            ],
            cpu_fallback=flag(env, "PSIONIC_CSM_CPU_FALLBACK_ON_ACCELERATOR_FAILURE", False),
            gpu_model_label=label(env, "PSIONIC_CSM_GPU_MODEL", "not_configured"),
            runtime_image_ref=label(env, "PSIONIC_CSM_RUNTIME_IMAGE_REF", RUNTIME_IMAGE_UNSET),
            dtype=DTYPES[choice(env, "PSIONIC_CSM_DTYPE", "auto", DTYPES)],
            lanes=integer(env, LANES, 4, 1, 512) if lanes else None,
            prefill_chunk=integer(env, "PSIONIC_CSM_PREFILL_CHUNK", 32, 1, 512),
            silence_stop_ms=_silence_stop_ms(env),
            torch_threads=integer(env, TORCH_THREADS, threads_per_worker(1), 1, 256),
            drain_grace_ms=integer(env, DRAIN_GRACE_MS, 25_000, 0, 600_000),
            metrics=SidePortSettings.from_env(env),
            otlp_endpoint=_otlp_endpoint(env),
            log_level=_log_level(env),
        )


@dataclass(frozen=True, slots=True)
class SchedulerSettings:
    """The scheduler process, which reaps and publishes."""

    queue: QueueSettings
    metrics: SidePortSettings
    log_level: str

    @classmethod
    def from_env(cls, env: Env = os.environ) -> SchedulerSettings:
        return cls(
            queue=QueueSettings.from_env(env),
            metrics=SidePortSettings.from_env(env),
            log_level=_log_level(env),
        )


@cache
def known_names() -> frozenset[str]:
    """Every variable that any process or command reads."""
    asked = Asked()
    for settings in (GatewaySettings, WorkerSettings, SchedulerSettings):
        settings.from_env(asked)
    read_hub_roots(asked)
    read_caller_key(asked)
    return frozenset({CACHE, *asked.names})


def _silence_stop_ms(env: Env) -> int:
    """No shorter than the quiet that speech may begin with: it would end answers before a word."""
    name, most = "PSIONIC_CSM_SILENCE_STOP_MS", 20_000
    value = integer(env, name, 2000, 0, most)
    if 0 < value <= LEAD_IN_MS:
        raise SettingsError(name, f"0, or a whole number from {LEAD_IN_MS + 1} to {most}")
    return value


def _otlp_endpoint(env: Env) -> str | None:
    endpoint = text(env, OTLP_ENDPOINT, "")
    if endpoint and not endpoint.startswith(("http://", "https://")):
        raise SettingsError(OTLP_ENDPOINT, "the http:// or https:// URL of an OTLP collector")
    return endpoint or None


def _log_level(env: Env) -> str:
    return choice(env, "PSIONIC_CSM_LOG_LEVEL", "info", LOG_LEVELS)
