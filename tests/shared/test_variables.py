"""Single variables: which of two goes first, and where things lie when none is set."""

from __future__ import annotations

from pathlib import Path

import pytest

from shared.environment import SettingsError
from shared.settings import QueueSettings, WorkerSettings, known_names
from shared.variables import read_cache_dir, read_hub_roots, read_redis_url


def test_the_specific_redis_variable_wins() -> None:
    """PSIONIC_CSM_REDIS_URL goes before REDIS_URL."""
    env = {"PSIONIC_CSM_REDIS_URL": "redis://a:1", "REDIS_URL": "redis://b:2"}

    assert QueueSettings.from_env(env).redis_url == "redis://a:1"
    assert read_redis_url({"REDIS_URL": "redis://b:2"}) == "redis://b:2"
    assert read_redis_url({}) is None


def test_the_cache_is_found_in_order() -> None:
    """Our own variable wins, then the XDG cache, then the home directory."""
    assert read_cache_dir({"PSIONIC_CSM_CACHE": "/a", "XDG_CACHE_HOME": "/b"}) == Path("/a")
    assert read_cache_dir({"XDG_CACHE_HOME": "/b"}) == Path("/b/psionic-csm")
    assert read_cache_dir({}) == Path.home() / ".cache" / "psionic-csm"


def test_a_user_without_a_home_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a container's user that the system doesn't know: settings are read all the same, and who
    needs the cache hears of its variable.
    """
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("os.getuid", lambda: 12345)

    with pytest.raises(SettingsError, match="PSIONIC_CSM_CACHE: takes a directory"):
        read_cache_dir({})
    known_names.cache_clear()
    assert "PSIONIC_CSM_CACHE" in known_names()


def test_hub_caches_are_looked_at_in_order() -> None:
    """HF_HOME comes before the home directory, and neither is invented."""
    home = Path("/h/.cache/huggingface/hub")

    assert read_hub_roots({}) == ()
    assert read_hub_roots({"HOME": "/h"}) == (home,)
    assert read_hub_roots({"HOME": "/h", "HF_HOME": "/f"}) == (Path("/f/hub"), home)
    assert read_hub_roots({"HOME": "/h", "HF_HOME": "/h/.cache/huggingface"}) == (home,)
    assert WorkerSettings.from_env({"HOME": "/h"}).hub_roots == (home,)
