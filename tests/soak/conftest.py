"""Soak runs stand on what the chaos tests stand on."""

from __future__ import annotations

from tests.chaos.conftest import chaos, demo_cache, open_site, up

__all__ = ["chaos", "demo_cache", "open_site", "up"]
