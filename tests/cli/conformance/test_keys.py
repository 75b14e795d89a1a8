"""The check of keys: who has none, and who has a wrong one, stays outside."""

from __future__ import annotations

import json
from dataclasses import replace

from cli.client import GatewayClient
from cli.conformance.report import BROKEN, KEPT, REFUSED
from tests.cli.conformance.bending import header, is_outcome, on, refusals, silent
from tests.cli.conformance.conftest import KEY, Deployment


def test_a_key_is_needed_where_the_documents_say_so(locked: Deployment) -> None:
    """Honest, it holds; a gateway that answers without the key, hides a probe, or keeps to itself
    that it needs a key, does not.
    """
    assert locked.check("keys").outcome == KEPT
    for lie in (
        lambda said: silent(said) if said.status == 401 else said,
        lambda said: silent(said) if said.status == 401 and is_outcome(said) else said,
        refusals(header("www-authenticate", None)),
        lambda said: replace(said, status=401) if said.path == "/health/live" else said,
        on("/openapi.json", lambda said: said.saying({**said.document(), "security": []})),
    ):
        assert locked.check("keys", lie).outcome == BROKEN


def test_who_has_a_key_expects_that_nobody_else_gets_in(deployment: Deployment) -> None:
    """An open gateway fails whoever brings a key, though its documents ask for none."""
    verdict = replace(deployment, api_key=KEY).check("keys")

    assert verdict.outcome == BROKEN
    assert "without a key is HTTP" in verdict.detail


def test_a_wrong_key_that_gets_in_is_seen(locked: Deployment) -> None:
    """A deployment that refuses whoever has no key, and takes any key at all, fails."""
    verdict = locked.check(
        "keys", lambda said: silent(said) if said.status == 401 and said.had_key else said
    )

    assert verdict.outcome == BROKEN
    assert "with a wrong key is HTTP 200" in verdict.detail


def test_a_missing_key_is_a_refusal_and_no_broken_promise(locked: Deployment) -> None:
    """Who forgets the key learns that, and nothing of the deployment."""
    with GatewayClient(locked.client.url) as client:
        verdict = replace(locked, client=client).check("speaks in one piece")

    assert (verdict.outcome, verdict.code) == (REFUSED, "unauthorized")
    assert KEY not in json.dumps(verdict.detail)
