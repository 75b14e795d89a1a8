"""The paths that a gateway answers at. ``LIVE``, ``READY`` and ``METRICS`` every process has."""

from __future__ import annotations

from typing import Final

SPEECH: Final = "/psionic/csm/speech"
OPENAI_SPEECH: Final = "/v1/audio/speech"
CANCELLATIONS: Final = "/psionic/csm/cancellations"
RESULT: Final = f"{SPEECH}/{{request_id}}"
RESULT_AUDIO: Final = f"{RESULT}/audio"
EVIDENCE: Final = "/psionic/csm/evidence/{request_id}"
OUTCOME: Final = f"{EVIDENCE}/outcome"
METADATA: Final = "/psionic/csm/worker/metadata"
LOAD: Final = "/psionic/csm/load"
MODELS: Final = "/v1/models"
HEALTH: Final = "/health"
LIVE: Final = f"{HEALTH}/live"
READY: Final = f"{HEALTH}/ready"
METRICS: Final = "/metrics"
DESCRIPTION: Final = "/openapi.json"
CONSOLE: Final = "/console"
