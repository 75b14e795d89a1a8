from __future__ import annotations

from pathlib import Path

from shared.governance.locations import default_cache_dir, hub_roots


def test_cache_dir_order() -> None:
    """Our own variable wins, then the XDG cache, then the home directory."""
    assert default_cache_dir({"PSIONIC_CSM_CACHE": "/a", "XDG_CACHE_HOME": "/b"}) == Path("/a")
    assert default_cache_dir({"XDG_CACHE_HOME": "/b"}) == Path("/b/psionic-csm")
    assert default_cache_dir({}) == Path.home() / ".cache" / "psionic-csm"


def test_hub_roots_order() -> None:
    """HF_HOME comes before the home directory, and neither is invented."""
    home = Path("/h/.cache/huggingface/hub")

    assert hub_roots({}) == ()
    assert hub_roots({"HOME": "/h"}) == (home,)
    assert hub_roots({"HOME": "/h", "HF_HOME": "/f"}) == (Path("/f/hub"), home)
    assert hub_roots({"HOME": "/h", "HF_HOME": "/h/.cache/huggingface"}) == (home,)
