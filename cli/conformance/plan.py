"""Which checks there are, in which order, for a deployment that serves and for one that is off."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cli.conformance import (
    access,
    cancels,
    disabled,
    documents,
    evidence,
    formats,
    refusals,
    results,
    speech,
    streams,
)
from cli.conformance.promise import Remark
from cli.conformance.run import Run

SERVING: Final = "serving"
DISABLED: Final = "disabled"


@dataclass(frozen=True, slots=True)
class Check:
    """One promise. ``keeps`` returns a detail worth a line, if there is one; see ``promise``."""

    name: str
    keeps: Callable[[Run], str | Remark | None]


REFUSALS: Final = (
    *(
        Check(f"refuses {name}", refusals.check_of(name, row))
        for name, row in refusals.ROWS.items()
    ),
    Check("refuses a raw prompt as a voice", refusals.raw_prompt),
    Check("refuses malformed JSON", refusals.malformed_json),
    Check("refuses what is no object", refusals.no_object),
    Check("refuses a body that is too large", refusals.body_too_large),
    Check("refuses another media type", refusals.media_type),
    Check("refuses another method", refusals.method),
    Check("refuses an unknown route", refusals.route),
    Check("refuses an unclear cancel", refusals.cancellation),
    Check("refuses a format it can't make", formats.unsupported),
    Check("knows no result of an unknown id", results.unknown),
    Check("takes no text for an outcome", evidence.not_an_outcome),
)
ANYWHERE: Final = (
    Check("models", documents.models),
    Check("load", documents.load),
    Check("metrics", documents.metrics),
    Check("OpenAPI", documents.openapi),
    Check("console", access.console),
    Check("keys", access.authentication),
)

PLANS: Final[dict[str, tuple[Check, ...]]] = {
    SERVING: (
        Check("live", documents.live),
        Check("ready", documents.ready),
        Check("health", documents.health),
        Check("metadata", documents.metadata),
        *ANYWHERE,
        *REFUSALS,
        Check("speaks in one piece", speech.speech),
        Check("replays an id", speech.replay),
        Check("refuses an id with another meaning", speech.conflict),
        Check("takes ids from headers", speech.id_from_header),
        Check("result by id", results.result),
        Check("audio by id", results.audio),
        Check("evidence by id", evidence.evidence),
        Check("records an outcome once", evidence.outcome),
        Check("format pcm", formats.pcm),
        Check("formats with encoders", formats.compressed),
        Check("stream multipart_mixed", streams.multipart_mixed),
        Check("stream jsonl_base64", streams.jsonl_base64),
        Check("stream audio", streams.audio),
        Check("stream sse", streams.sse),
        Check("voice-turn budget in one piece", speech.voice_turn_budget),
        Check("voice-turn budget in a stream", streams.fallback),
        Check("remembers a cancel", cancels.remembered),
        Check("cancels a stream", cancels.running),
        Check("cancels an answer in one piece", cancels.in_one_piece),
        Check("forgets who left", cancels.departure),
    ),
    DISABLED: (
        Check("live", documents.live),
        Check("not ready", disabled.not_ready),
        Check("health", disabled.health),
        Check("metadata", disabled.metadata),
        *ANYWHERE,
        *REFUSALS,
        Check("refuses to speak in one piece", disabled.speech),
        Check("refuses to speak in a stream", disabled.streams),
        Check("remembers a cancel", cancels.remembered),
    ),
}
