"""Every check of ``smoke``: it holds for an honest gateway, and it sees the lie that breaks it."""

from __future__ import annotations

from typing import Any

import pytest

from cli.conformance.plan import DISABLED, PLANS, SERVING
from cli.conformance.refusals import ROWS
from cli.conformance.report import BROKEN, KEPT, SKIPPED
from gateway.operations import operations
from tests.cli.conformance.bending import (
    SPEECH,
    header,
    key,
    refusals,
    silent,
    status,
    swapped,
    under,
)
from tests.cli.conformance.conftest import Deployment
from tests.cli.conformance.liar import Lie, Said
from tests.cli.conformance.lies import BENT_REFUSALS, DISABLED_LIES, LIES, OF_THEIR_OWN, PATHS


def cases(lies: dict[str, list[Lie]]) -> list[Any]:
    return [
        pytest.param(name, lie, id=f"{name}-{number}")
        for name, told in lies.items()
        for number, lie in enumerate(told)
    ]


@pytest.mark.parametrize("check", PLANS[SERVING], ids=lambda check: check.name)
def test_an_honest_gateway_keeps_every_promise(deployment: Deployment, check: Any) -> None:
    """Each check holds by itself, without those before it."""
    verdict = deployment.check(check.name)

    assert (verdict.outcome, verdict.detail) == (
        (SKIPPED, "this deployment asks for no key")
        if check.name == "keys"
        else (KEPT, verdict.detail)
    )


@pytest.mark.parametrize("check", PLANS[DISABLED], ids=lambda check: check.name)
def test_a_disabled_gateway_keeps_what_it_can(disabled: Deployment, check: Any) -> None:
    """Without a worker every check of that plan holds, too."""
    verdict = disabled.check(check.name)

    assert verdict.outcome in (KEPT, SKIPPED), verdict.detail


@pytest.mark.parametrize(("name", "lie"), cases(LIES))
def test_a_lie_is_seen(deployment: Deployment, name: str, lie: Lie) -> None:
    """Each promise, broken in the answer, breaks its check."""
    verdict = deployment.check(name, lie)

    assert verdict.outcome == BROKEN, verdict.detail
    assert verdict.detail


@pytest.mark.parametrize(("name", "lie"), cases(DISABLED_LIES))
def test_a_lie_of_a_disabled_gateway_is_seen(disabled: Deployment, name: str, lie: Lie) -> None:
    """So it is where the runtime is off."""
    assert disabled.check(name, lie).outcome == BROKEN


@pytest.mark.parametrize("row", ROWS)
def test_a_refusal_that_is_none_is_seen(deployment: Deployment, row: str) -> None:
    """Each thing that has to be refused, accepted, breaks its check."""
    assert deployment.check(f"refuses {row}", refusals(silent)).outcome == BROKEN


@pytest.mark.parametrize("number", range(len(BENT_REFUSALS)))
def test_every_part_of_a_refusal_is_looked_at(deployment: Deployment, number: int) -> None:
    """Envelope, status, verdicts and headers: one that is wrong breaks the check."""
    verdict = deployment.check("refuses a blank text", refusals(BENT_REFUSALS[number]))

    assert verdict.outcome == BROKEN, verdict.detail


def test_a_refusal_of_the_wrong_field_is_seen(deployment: Deployment) -> None:
    """``param`` names what was wrong."""
    lie = refusals(key("error", "param", value="voice"))

    assert deployment.check("refuses a seed out of range", lie).outcome == BROKEN


def test_an_id_that_becomes_a_header_is_seen(deployment: Deployment) -> None:
    """What a request id smuggles in is looked for among the headers."""
    name = "refuses a request id with a line end"

    assert deployment.check(name, refusals(header("x-smoke", "1"))).outcome == BROKEN


def test_every_path_is_asked_for() -> None:
    """No path that a gateway answers at is missing from what its description is held to."""
    assert {operation.path for operation in operations(())} == set(PATHS)


def test_every_check_is_proven() -> None:
    """No check without a lie that breaks it."""
    rows = {f"refuses {name}" for name in ROWS}

    assert {check.name for check in PLANS[SERVING]} == LIES.keys() | rows | OF_THEIR_OWN
    assert {check.name for check in PLANS[DISABLED]} <= {
        *LIES,
        *DISABLED_LIES,
        *rows,
        *OF_THEIR_OWN,
    }


@pytest.mark.parametrize(
    "lie",
    [
        pytest.param(under("/psionic/csm/cancellations", key("hits", value=[])), id="no hit"),
        pytest.param(under("/psionic/csm/cancellations", status(200)), id="no 202"),
        pytest.param(under(SPEECH + "/", swapped(b'"cancelled"', b'"stop"')), id="no result"),
    ],
)
def test_a_cancel_that_does_not_hold_is_seen(deployment: Deployment, lie: Lie) -> None:
    """The stream itself is honest: what is bent is what is said of it."""
    assert deployment.check("cancels a stream", lie, live=SPEECH).outcome == BROKEN


def test_who_left_and_is_not_forgotten_is_seen(deployment: Deployment) -> None:
    """A result that stays where its only caller has left breaks the check."""

    def lie(said: Said) -> Said:
        left = said.path.endswith("-left") and said.status == 404
        return silent(said).saying({"state": "running"}) if left else said

    verdict = deployment.check("forgets who left", lie, live=SPEECH, timeout_s=1.0)

    assert verdict.outcome == BROKEN
