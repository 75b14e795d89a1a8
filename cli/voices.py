"""``psionic-csm voices``: the voice profiles that a gateway speaks in."""

from __future__ import annotations

from cli import show
from cli.client import GatewayClient, understood


def run(url: str, *, api_key: str | None, as_json: bool) -> None:
    with GatewayClient(url, api_key=api_key) as client:
        document = client.health()
    with understood():
        profiles = document["voice_profiles"]
        rows = [
            (
                profile["id"],
                profile["display_name"],
                profile["speaker"],
                profile["approval_status"],
                profile["consent_posture"],
            )
            for profile in profiles
        ]
    if as_json:
        show.document(profiles)
        return
    show.table(("voice", "name", "speaker", "approval", "consent"), rows)
