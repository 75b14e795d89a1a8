"""``psionic-csm outcome``: what the caller's business made of a request, said once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cli import show
from cli.client import GatewayClient, understood


def run(
    url: str, request_id: str, outcome: Mapping[str, Any], *, api_key: str | None, as_json: bool
) -> None:
    """Records an outcome and shows what is recorded. Raises :class:`CommandFailed`."""
    with GatewayClient(url, api_key=api_key) as client:
        recorded = client.record_outcome(request_id, outcome)
    if as_json:
        show.document(recorded)
    else:
        with understood():
            said = in_words(recorded["business_outcome"])
        show.facts([(request_id, said)])


def in_words(outcome: Mapping[str, Any] | None) -> str:
    if outcome is None:
        return "none recorded"
    reason = f", {outcome['reason']}" if outcome["reason"] else ""
    return f"{outcome['outcome']} ({outcome['mode']}{reason})"
