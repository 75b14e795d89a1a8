"""A setting is used exactly as given, or it stops the process with its name."""

from __future__ import annotations

from pathlib import Path

import pytest

from shared.environment import SettingsError
from shared.settings import (
    GatewaySettings,
    QueueSettings,
    SchedulerSettings,
    WorkerSettings,
)
from shared.tiers import TIERS


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
        ("PSIONIC_CSM_DTYPE", "float16"),
        ("PSIONIC_CSM_LANES", "0"),
        ("PSIONIC_CSM_RUNTIME", "maybe"),
        ("PSIONIC_CSM_STARTUP_LOAD_MODE", "later"),
        ("PSIONIC_CSM_CPU_FALLBACK_ON_ACCELERATOR_FAILURE", "2"),
        ("PSIONIC_CSM_SILENCE_STOP_MS", "480"),
    ],
)
def test_a_bad_value_stops_the_worker_and_is_named(name: str, value: str) -> None:
    """A worker doesn't guess either."""
    with pytest.raises(SettingsError, match=name):
        WorkerSettings.from_env({name: value})


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("PSIONIC_CSM_LEASEMS", "PSIONIC_CSM_LEASE_MS"),
        ("PSIONIC_CSM_LANE", "PSIONIC_CSM_LANES"),
        ("PSIONIC_CSM_ARTIFACT_DIR", "PSIONIC_CSM_ARTIFACTS"),
        ("PSIONIC_CSM_GATEWAY_PORT", "PSIONIC_CSM_PORT"),
        ("PSIONIC_CSM_ZZZZZZ", "docs/operating.md"),
    ],
)
def test_a_name_that_nothing_reads_stops_every_process(name: str, nearest: str) -> None:
    """A misspelt setting is not ignored: the nearest one is named, and the value never."""
    for settings in (GatewaySettings, WorkerSettings, SchedulerSettings):
        with pytest.raises(SettingsError, match=f"^{name}: no such setting.*{nearest}") as caught:
            settings.from_env({name: "0123456789abcdef-secret"})
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PSIONIC_CSM_GATEWAY_PORT", "tcp://10.0.0.1:8081"),
        ("PSIONIC_CSM_GATEWAY_PORT_8081_TCP_ADDR", "10.0.0.1"),
        ("PSIONIC_CSM_GATEWAY_SERVICE_HOST", "10.0.0.1"),
        ("PSIONIC_CSM_GATEWAY_SERVICE_PORT_HTTP", "8081"),
        ("PSIONIC_CSM_SMOKE_URL", "http://127.0.0.1:8081"),
        ("PSIONIC_CSM_QUUX", ""),
        ("PSIONIC_OTHER", "x"),
    ],
)
def test_names_that_others_set_are_theirs(name: str, value: str) -> None:
    """What Kubernetes adds for a service, Autopilot's scripts read, or is blank stops nothing."""
    assert GatewaySettings.from_env({name: value}) == GatewaySettings.from_env({})


def test_each_process_may_carry_every_other_s_settings() -> None:
    """One environment serves a whole deployment: what a gateway reads stops no worker."""
    env = {"PSIONIC_CSM_LANES": "2", "PSIONIC_CSM_PORT": "1", "PSIONIC_CSM_CACHE": "/c"}

    assert SchedulerSettings.from_env(env).queue == QueueSettings.from_env({})
    assert WorkerSettings.from_env(env).lanes == 2


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


def test_an_empty_variable_is_not_set() -> None:
    """What a compose file leaves blank has its default, also where blank would mean something."""
    names = ("HOST", "PORT", "TIER", "BACKEND", "STARTUP_LOAD_MODE", "NAMESPACE", "LOG_LEVEL")
    blank = {f"PSIONIC_CSM_{name}": "" for name in names}

    assert GatewaySettings.from_env(blank) == GatewaySettings.from_env({})
    assert WorkerSettings.from_env(blank) == WorkerSettings.from_env({})


@pytest.mark.parametrize(
    ("lasting", "value", "within", "too_much"),
    [
        ("PSIONIC_CSM_LISTENER_TTL_MS", "1000", "PSIONIC_CSM_LISTENER_RENEW_MS", "501"),
        ("PSIONIC_CSM_RESULT_TTL_MS", "60000", "PSIONIC_CSM_METADATA_TTL_MS", "59999"),
        ("PSIONIC_CSM_MAX_QUEUE_DEPTH", "20", "PSIONIC_CSM_MIN_QUEUE_DEPTH", "21"),
    ],
)
def test_settings_that_contradict_each_other_stop_the_process(
    lasting: str, value: str, within: str, too_much: str
) -> None:
    """Callers are renewed before they lapse, the facts of a job outlast its audio, and a queue may
    be as long as it always may.
    """
    with pytest.raises(SettingsError, match=within):
        QueueSettings.from_env({lasting: value, within: too_much})


def test_the_times_that_go_with_others_follow_them() -> None:
    """Where only one of two is set, the other's default fits to it."""
    hasty = QueueSettings.from_env({"PSIONIC_CSM_LISTENER_TTL_MS": "1000"})
    lasting = QueueSettings.from_env({"PSIONIC_CSM_RESULT_TTL_MS": "3600000"})

    assert hasty.listener_renew_ms * 3 <= hasty.listener_ttl_ms
    assert lasting.metadata_ttl_ms == lasting.result_ttl_ms
    assert QueueSettings.from_env({"PSIONIC_CSM_MAX_QUEUE_DEPTH": "5"}).min_queue_depth == 5


def test_a_pause_may_be_longer_than_speech_takes_to_begin() -> None:
    """Silence ends an answer after more than the quiet before its first word, or never."""
    for value in ("0", "481", "20000"):
        settings = WorkerSettings.from_env({"PSIONIC_CSM_SILENCE_STOP_MS": value})
        assert settings.silence_stop_frames == 0 or settings.silence_stop_frames > 6


def test_blank_lanes_are_none() -> None:
    """A blank is no number: the backend's own number of lanes stays."""
    assert WorkerSettings.from_env({"PSIONIC_CSM_LANES": " "}).lanes is None
