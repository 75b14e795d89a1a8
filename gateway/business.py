"""What the caller's business made of a request: said once, kept with the evidence.

It is recorded and nothing else: no rule of the service reads it.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from gateway.ids import is_id
from gateway.metrics import GatewayMetrics
from gateway.schema import MAX_PLAYED_MS, MODES, OUTCOMES, REASON, OutcomeRequest
from scheduler.business_outcomes import BusinessOutcomes
from scheduler.results import BusinessOutcome
from shared.errors import SpeechError

_REASON: Final = re.compile(REASON)


class OutcomeRecorder:
    """Records outcomes and counts those that are new."""

    def __init__(self, kept: BusinessOutcomes, metrics: GatewayMetrics) -> None:
        self._kept = kept
        self._metrics = metrics

    async def record(
        self, principal: str, request_id: str, said: OutcomeRequest
    ) -> tuple[dict[str, Any], bool]:
        """The outcome as the evidence has it, and whether it is new.

        Raises SpeechError: ``invalid_outcome``, ``outcome_conflict``, ``result_not_found``.
        """
        outcome = _checked(said)
        text = json.dumps(outcome, separators=(",", ":"))
        recorded = await self._kept.record(principal, request_id, text)
        if recorded.verdict == "unknown":
            raise SpeechError("result_not_found", "no such request is known, or no longer")
        if recorded.verdict == "conflict":
            raise SpeechError("outcome_conflict", "another outcome of this request is recorded")
        is_new = recorded.verdict == "recorded"
        if is_new:
            self._metrics.outcome_recorded(outcome["outcome"], outcome["mode"])
        return {**outcome, "recorded_at_unix_ms": recorded.at_ms}, is_new


def as_evidence(outcome: BusinessOutcome | None) -> dict[str, Any] | None:
    """A recorded outcome as the evidence has it."""
    if outcome is None:
        return None
    return {**json.loads(outcome.text), "recorded_at_unix_ms": outcome.at_ms}


def _checked(said: OutcomeRequest) -> dict[str, Any]:
    mode = MODES[0] if said.mode is None else said.mode
    if said.outcome not in OUTCOMES:
        raise _invalid("outcome", f"outcome takes one of {', '.join(OUTCOMES)}")
    if mode not in MODES:
        raise _invalid("mode", f"mode takes one of {', '.join(MODES)}")
    if said.reason is not None and not _REASON.fullmatch(said.reason):
        raise _invalid("reason", "reason takes 1 to 64 of a-z 0-9 _, and begins with a letter")
    if said.played_ms is not None and said.played_ms > MAX_PLAYED_MS:
        raise _invalid("played_ms", f"played_ms takes 0 to {MAX_PLAYED_MS}")
    if said.reference is not None and not is_id(said.reference):
        raise _invalid("reference", "reference takes 1 to 128 of A-Z a-z 0-9 . _ : -")
    return {
        "outcome": said.outcome,
        "mode": mode,
        "reason": said.reason,
        "played_ms": said.played_ms,
        "reference": said.reference,
    }


def _invalid(param: str, message: str) -> SpeechError:
    return SpeechError("invalid_outcome", message, param=param)
