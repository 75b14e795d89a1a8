"""Every environment variable of the service, read once into frozen settings.

A value that can't be used stops the process at start with the variable's name and what it takes.
Nothing is ignored and nothing falls back in silence.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

Env = Mapping[str, str]

TRUE_WORDS: Final = frozenset({"1", "true", "yes", "on"})
FALSE_WORDS: Final = frozenset({"0", "false", "no", "off", "disabled"})
RUNTIME_IMAGE_UNSET: Final = "not_configured_local_runtime"


class SettingsError(ValueError):
    """An environment variable with a value that can't be used."""

    def __init__(self, name: str, takes: str) -> None:
        super().__init__(f"{name}: takes {takes}")
        self.name = name


@dataclass(frozen=True, slots=True)
class Tier:
    """What one deployment tier allows. Lengths and timeouts in milliseconds."""

    name: str
    default_audio_length_ms: int
    max_audio_length_ms: int
    max_timeout_ms: int
    max_queue_depth: int
    max_waiting_per_principal: int
    allows_open_access: bool


TIERS: Final[dict[str, Tier]] = {
    tier.name: tier
    for tier in (
        #     name          default  longest  timeout  depth  per principal  open
        Tier("local", 15_000, 20_000, 30_000, 256, 256, True),
        Tier("dogfood", 15_000, 20_000, 30_000, 256, 64, False),
        Tier("canary", 15_000, 20_000, 30_000, 512, 64, False),
        Tier("production", 15_000, 20_000, 30_000, 1024, 128, False),
    )
}


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

    @classmethod
    def from_env(cls, env: Env = os.environ) -> QueueSettings:
        tier = read_tier(env)
        lease_ms = _integer(env, "PSIONIC_CSM_LEASE_MS", 3000, 500, 60_000)
        return cls(
            redis_url=_redis_url(env),
            namespace=_name(env, "PSIONIC_CSM_NAMESPACE", "csm"),
            lease_ms=lease_ms,
            renew_ms=_integer(
                env, "PSIONIC_CSM_RENEW_MS", min(500, lease_ms // 4), 50, lease_ms // 2
            ),
            listener_ttl_ms=_integer(env, "PSIONIC_CSM_LISTENER_TTL_MS", 6000, 1000, 60_000),
            listener_renew_ms=_integer(env, "PSIONIC_CSM_LISTENER_RENEW_MS", 2000, 100, 20_000),
            cancel_memory_ms=_integer(env, "PSIONIC_CSM_CANCEL_MEMORY_MS", 60_000, 1000, 3_600_000),
            result_ttl_ms=_integer(env, "PSIONIC_CSM_RESULT_TTL_MS", 60_000, 1000, 3_600_000),
            metadata_ttl_ms=_integer(env, "PSIONIC_CSM_METADATA_TTL_MS", 600_000, 1000, 86_400_000),
            retained_bytes=_integer(env, "PSIONIC_CSM_RETAINED_BYTES", 256 << 20, 1 << 20, 1 << 40),
            max_attempts=_integer(env, "PSIONIC_CSM_MAX_ATTEMPTS", 2, 1, 10),
            reap_interval_ms=_integer(env, "PSIONIC_CSM_REAP_INTERVAL_MS", 1000, 50, 60_000),
            min_queue_depth=_integer(env, "PSIONIC_CSM_MIN_QUEUE_DEPTH", 16, 1, 100_000),
            queue_depth_per_lane=_integer(env, "PSIONIC_CSM_QUEUE_DEPTH_PER_LANE", 4, 1, 1000),
            max_queue_depth=_integer(
                env, "PSIONIC_CSM_MAX_QUEUE_DEPTH", tier.max_queue_depth, 1, 100_000
            ),
            max_waiting_per_principal=_integer(
                env,
                "PSIONIC_CSM_MAX_WAITING_PER_PRINCIPAL",
                tier.max_waiting_per_principal,
                1,
                100_000,
            ),
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
    log_level: str

    @classmethod
    def from_env(cls, env: Env = os.environ) -> GatewaySettings:
        tier = read_tier(env)
        api_keys = _api_keys(env)
        if not api_keys and not tier.allows_open_access:
            raise SettingsError(
                "PSIONIC_CSM_API_KEYS",
                f"at least one key in tier {tier.name!r} (only tier 'local' may run open)",
            )
        return cls(
            queue=QueueSettings.from_env(env),
            tier=tier,
            host=env.get("PSIONIC_CSM_HOST", "127.0.0.1"),
            port=_integer(env, "PSIONIC_CSM_PORT", 8081, 0, 65_535),
            model_id=_label(env, "PSIONIC_CSM_MODEL_ID", "sesame/csm-1b"),
            model_aliases=_list(env, "PSIONIC_CSM_MODEL_ALIASES"),
            artifact_dirs=read_artifact_dirs(env),
            api_keys=api_keys,
            runtime_image_ref=_label(env, "PSIONIC_CSM_RUNTIME_IMAGE_REF", RUNTIME_IMAGE_UNSET),
            drain_grace_ms=_integer(env, "PSIONIC_CSM_DRAIN_GRACE_MS", 25_000, 0, 600_000),
            max_connections=_integer(env, "PSIONIC_CSM_MAX_CONNECTIONS", 2048, 1, 1_000_000),
            log_level=_log_level(env),
        )


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """One GPU worker process, which serves one artifact."""

    queue: QueueSettings
    artifact_dir: Path | None
    runtime_enabled: bool
    backend: str
    startup_load_mode: str
    cpu_fallback: bool
    gpu_model_label: str
    runtime_image_ref: str
    lanes: int | None
    prefill_chunk: int
    silence_stop_ms: int
    torch_threads: int
    drain_grace_ms: int
    log_level: str

    @classmethod
    def from_env(cls, env: Env = os.environ) -> WorkerSettings:
        dirs = read_artifact_dirs(env)
        lanes = env.get("PSIONIC_CSM_LANES", "")
        return cls(
            queue=QueueSettings.from_env(env),
            artifact_dir=dirs[0] if dirs else None,
            runtime_enabled=_flag(env, "PSIONIC_CSM_RUNTIME", True),
            backend=env.get("PSIONIC_CSM_BACKEND", "cpu"),
            startup_load_mode=_startup_mode(env),
            cpu_fallback=_flag(env, "PSIONIC_CSM_CPU_FALLBACK_ON_ACCELERATOR_FAILURE", False),
            gpu_model_label=_label(env, "PSIONIC_CSM_GPU_MODEL", "not_configured"),
            runtime_image_ref=_label(env, "PSIONIC_CSM_RUNTIME_IMAGE_REF", RUNTIME_IMAGE_UNSET),
            lanes=_integer(env, "PSIONIC_CSM_LANES", 4, 1, 512) if lanes else None,
            prefill_chunk=_integer(env, "PSIONIC_CSM_PREFILL_CHUNK", 32, 1, 512),
            silence_stop_ms=_integer(env, "PSIONIC_CSM_SILENCE_STOP_MS", 2000, 0, 20_000),
            torch_threads=_integer(
                env, "PSIONIC_CSM_TORCH_THREADS", max(1, (os.cpu_count() or 2) // 2), 1, 256
            ),
            drain_grace_ms=_integer(env, "PSIONIC_CSM_DRAIN_GRACE_MS", 25_000, 0, 600_000),
            log_level=_log_level(env),
        )


@dataclass(frozen=True, slots=True)
class SchedulerSettings:
    """The scheduler process, which reaps and publishes."""

    queue: QueueSettings
    log_level: str

    @classmethod
    def from_env(cls, env: Env = os.environ) -> SchedulerSettings:
        return cls(queue=QueueSettings.from_env(env), log_level=_log_level(env))


def read_tier(env: Env = os.environ) -> Tier:
    name = env.get("PSIONIC_CSM_TIER", "local")
    if name not in TIERS:
        raise SettingsError("PSIONIC_CSM_TIER", f"one of {', '.join(TIERS)}")
    return TIERS[name]


def read_artifact_dirs(env: Env = os.environ) -> tuple[Path, ...]:
    """Artifact directories, the default first; empty when the variable is not set."""
    return tuple(
        Path(part) for part in env.get("PSIONIC_CSM_ARTIFACTS", "").split(os.pathsep) if part
    )


def _integer(env: Env, name: str, default: int, low: int, high: int) -> int:
    text = env.get(name, "")
    if not text:
        return default
    takes = f"a whole number from {low} to {high}"
    if not re.fullmatch(r"-?[0-9]{1,18}", text.strip(), re.ASCII):
        raise SettingsError(name, takes)
    value = int(text)
    if not low <= value <= high:
        raise SettingsError(name, takes)
    return value


def _flag(env: Env, name: str, default: bool) -> bool:
    word = env.get(name, "").strip().lower()
    if not word:
        return default
    if word in TRUE_WORDS:
        return True
    if word in FALSE_WORDS:
        return False
    raise SettingsError(name, "true or false (also 1/0, yes/no, on/off)")


def _name(env: Env, name: str, default: str) -> str:
    value = env.get(name, "") or default
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,32}", value, re.ASCII):
        raise SettingsError(name, "1 to 32 of the characters A-Z a-z 0-9 _ -")
    return value


def _label(env: Env, name: str, default: str) -> str:
    """A published label, which also has to be a legal HTTP header value."""
    value = env.get(name, "") or default
    if not re.fullmatch(r"[\x21-\x7e][\x20-\x7e]{0,254}", value):
        raise SettingsError(name, "up to 255 printable ASCII characters")
    return value


def _list(env: Env, name: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in env.get(name, "").split(",") if part.strip())


def _redis_url(env: Env) -> str:
    name = "PSIONIC_CSM_REDIS_URL" if env.get("PSIONIC_CSM_REDIS_URL") else "REDIS_URL"
    url = env.get(name, "") or "redis://127.0.0.1:6379/0"
    if not url.startswith(("redis://", "rediss://", "unix://")):
        raise SettingsError(name, "a redis://, rediss:// or unix:// URL")
    return url


def _startup_mode(env: Env) -> str:
    name = "PSIONIC_CSM_STARTUP_LOAD_MODE"
    word = (env.get(name, "") or "sync").strip().lower()
    if word in {"background", "async", "deferred"}:
        return "background"
    if word == "sync":
        return "sync"
    raise SettingsError(name, "sync or background (also async, deferred)")


def _log_level(env: Env) -> str:
    word = (env.get("PSIONIC_CSM_LOG_LEVEL", "") or "info").strip().lower()
    if word not in {"debug", "info", "warning", "error"}:
        raise SettingsError("PSIONIC_CSM_LOG_LEVEL", "debug, info, warning or error")
    return word


def _api_keys(env: Env) -> tuple[str, ...]:
    """Bearer keys from a comma list, or one a line from the file that the variable names."""
    name = "PSIONIC_CSM_API_KEYS"
    value = env.get(name, "").strip()
    if value.startswith(("/", "./")):
        try:
            lines = Path(value).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(name, "a comma list of keys, or a readable file of keys") from error
        keys = tuple(line.strip() for line in lines if line.strip() and not line.startswith("#"))
        if not keys:
            raise SettingsError(name, "a file with at least one key")
    else:
        keys = _list(env, name)
    if any(not re.fullmatch(r"[\x21-\x7e]{16,256}", key) for key in keys):
        raise SettingsError(name, "keys of 16 to 256 printable ASCII characters")
    return keys
