"""A setting is used exactly as given, or it stops the process with its name."""

from __future__ import annotations

from pathlib import Path

import pytest

from shared.settings import (
    TIERS,
    GatewaySettings,
    QueueSettings,
    SchedulerSettings,
    SettingsError,
    WorkerSettings,
)


def test_the_defaults_are_the_documented_ones() -> None:
    """With nothing set, the queue runs with the documented times and bounds."""
    queue = QueueSettings.from_env({})

    assert (queue.namespace, queue.redis_url) == ("csm", "redis://127.0.0.1:6379/0")
    assert (queue.lease_ms, queue.renew_ms, queue.max_attempts) == (3000, 500, 2)
    assert (queue.listener_ttl_ms, queue.listener_renew_ms) == (6000, 2000)
    assert (queue.result_ttl_ms, queue.metadata_ttl_ms) == (60_000, 600_000)
    assert (queue.min_queue_depth, queue.queue_depth_per_lane) == (16, 4)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PSIONIC_CSM_LEASE_MS", "soon"),
        ("PSIONIC_CSM_LEASE_MS", "3e3"),
        ("PSIONIC_CSM_LEASE_MS", "-1"),
        ("PSIONIC_CSM_LEASE_MS", "٣٠٠٠"),
        ("PSIONIC_CSM_LEASE_MS", "9" * 400),
        ("PSIONIC_CSM_NAMESPACE", "a:b"),
        ("PSIONIC_CSM_NAMESPACE", "x" * 33),
        ("PSIONIC_CSM_TIER", "staging"),
        ("PSIONIC_CSM_REDIS_URL", "http://example"),
        ("PSIONIC_CSM_PORT", "65536"),
        ("PSIONIC_CSM_MODEL_ID", "two\nlines"),
        ("PSIONIC_CSM_RUNTIME_IMAGE_REF", "ü"),
        ("PSIONIC_CSM_API_KEYS", "short"),
        ("PSIONIC_CSM_API_KEYS", "/no/such/file"),
        ("PSIONIC_CSM_LOG_LEVEL", "loud"),
    ],
)
def test_a_bad_value_stops_the_gateway_and_is_named(name: str, value: str) -> None:
    """The error names the variable and what it takes, and doesn't repeat the value."""
    with pytest.raises(SettingsError, match=name) as caught:
        GatewaySettings.from_env({name: value})

    assert value not in str(caught.value) or len(value) < 4


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PSIONIC_CSM_LANES", "0"),
        ("PSIONIC_CSM_RUNTIME", "maybe"),
        ("PSIONIC_CSM_STARTUP_LOAD_MODE", "later"),
        ("PSIONIC_CSM_CPU_FALLBACK_ON_ACCELERATOR_FAILURE", "2"),
    ],
)
def test_a_bad_value_stops_the_worker_and_is_named(name: str, value: str) -> None:
    """A worker doesn't guess either."""
    with pytest.raises(SettingsError, match=name):
        WorkerSettings.from_env({name: value})


@pytest.mark.parametrize("tier", [name for name, tier in TIERS.items() if name != "local"])
def test_only_the_local_tier_runs_open(tier: str) -> None:
    """Above local, a gateway without keys refuses to start."""
    with pytest.raises(SettingsError, match="PSIONIC_CSM_API_KEYS"):
        GatewaySettings.from_env({"PSIONIC_CSM_TIER": tier})

    keyed = {"PSIONIC_CSM_TIER": tier, "PSIONIC_CSM_API_KEYS": "k" * 16}
    assert GatewaySettings.from_env(keyed).api_keys == ("k" * 16,)


def test_keys_come_from_a_file(tmp_path: Path) -> None:
    """A path names a file with one key a line, so that keys stay out of the environment."""
    path = tmp_path / "keys"
    path.write_text(f"# rotated monthly\n{'a' * 16}\n\n{'b' * 20}\n")

    settings = GatewaySettings.from_env({"PSIONIC_CSM_API_KEYS": str(path)})

    assert settings.api_keys == ("a" * 16, "b" * 20)


def test_a_lease_is_renewed_well_before_it_lapses() -> None:
    """Whatever the lease, the default renewal fits in it several times."""
    for lease_ms in (500, 1000, 3000, 60_000):
        settings = SchedulerSettings.from_env({"PSIONIC_CSM_LEASE_MS": str(lease_ms)})
        assert settings.queue.renew_ms * 4 <= lease_ms


def test_the_specific_redis_variable_wins() -> None:
    """PSIONIC_CSM_REDIS_URL goes before REDIS_URL."""
    env = {"PSIONIC_CSM_REDIS_URL": "redis://a:1", "REDIS_URL": "redis://b:2"}

    assert QueueSettings.from_env(env).redis_url == "redis://a:1"
