"""The environment variables that more than one module names or reads, each spelled once.

The others are read, and so spelled, by the one kind of process that they are for
(``shared.settings``).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from shared.environment import Env, SettingsError, choice, key_part, secrets
from shared.tiers import TIERS, Tier

REDIS_URL: Final = "PSIONIC_CSM_REDIS_URL"
COMMON_REDIS_URL: Final = "REDIS_URL"
"""What other programs call it, too. Ours goes first."""
NAMESPACE: Final = "PSIONIC_CSM_NAMESPACE"
HOST: Final = "PSIONIC_CSM_HOST"
PORT: Final = "PSIONIC_CSM_PORT"
MAX_CONNECTIONS: Final = "PSIONIC_CSM_MAX_CONNECTIONS"
METRICS_PORT: Final = "PSIONIC_CSM_METRICS_PORT"
OTLP_ENDPOINT: Final = "PSIONIC_CSM_OTLP_ENDPOINT"
ARTIFACTS: Final = "PSIONIC_CSM_ARTIFACTS"
CACHE: Final = "PSIONIC_CSM_CACHE"
LANES: Final = "PSIONIC_CSM_LANES"
TORCH_THREADS: Final = "PSIONIC_CSM_TORCH_THREADS"
API_KEYS: Final = "PSIONIC_CSM_API_KEYS"
MIN_QUEUE_DEPTH: Final = "PSIONIC_CSM_MIN_QUEUE_DEPTH"
MAX_QUEUE_DEPTH: Final = "PSIONIC_CSM_MAX_QUEUE_DEPTH"
MAX_WAITING_PER_PRINCIPAL: Final = "PSIONIC_CSM_MAX_WAITING_PER_PRINCIPAL"
DRAIN_GRACE_MS: Final = "PSIONIC_CSM_DRAIN_GRACE_MS"


def read_tier(env: Env = os.environ) -> Tier:
    return TIERS[choice(env, "PSIONIC_CSM_TIER", "local", TIERS)]


def read_namespace(env: Env = os.environ) -> str:
    return key_part(env, NAMESPACE, "csm")


def redis_variable(env: Env = os.environ) -> str:
    """The variable that names the Redis, or that would."""
    return REDIS_URL if env.get(REDIS_URL) else COMMON_REDIS_URL


def read_redis_url(env: Env = os.environ) -> str | None:
    """The Redis that is named, or None."""
    name = redis_variable(env)
    url = env.get(name, "")
    if url and not url.startswith(("redis://", "rediss://", "unix://")):
        raise SettingsError(name, "a redis://, rediss:// or unix:// URL")
    return url or None


def read_artifact_dirs(env: Env = os.environ) -> tuple[Path, ...]:
    """Artifact directories, the default first; empty when the variable is not set."""
    return tuple(Path(part) for part in env.get(ARTIFACTS, "").split(os.pathsep) if part)


def read_cache_dir(env: Env = os.environ) -> Path:
    """The directory for artifacts that are built here: as named, else below the user's cache."""
    if chosen := env.get(CACHE):
        return Path(chosen)
    if base := env.get("XDG_CACHE_HOME"):
        return Path(base) / "psionic-csm"
    try:
        return Path.home() / ".cache" / "psionic-csm"
    except RuntimeError as error:  # no HOME, and a user that the system doesn't know
        raise SettingsError(CACHE, "a directory, since this user has no home") from error


def read_hub_roots(env: Env = os.environ) -> tuple[Path, ...]:
    """The Hugging Face hub caches to look in: HF_HOME's, then the home directory's."""
    roots = []
    if hf_home := env.get("HF_HOME"):
        roots.append(Path(hf_home) / "hub")
    if home := env.get("HOME"):
        roots.append(Path(home) / ".cache" / "huggingface" / "hub")
    return tuple(dict.fromkeys(roots))


def read_caller_key(env: Env = os.environ) -> str | None:
    """The key to call a gateway with: the caller's own, or on its machine the gateway's first."""
    if own := env.get("PSIONIC_CSM_API_KEY"):
        return own
    keys = secrets(env, API_KEYS)
    return keys[0] if keys else None
