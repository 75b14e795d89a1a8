"""The report of one run: evidence of which promises a deployment kept, when, and which it was."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import metadata
from typing import Any, Final

from cli.conformance.withholding import withheld

SCHEMA: Final = "psionic.csm.conformance_report.v1"
KEPT: Final = "kept"
BROKEN: Final = "broken"
REFUSED: Final = "refused"
UNREACHABLE: Final = "unreachable"
SKIPPED: Final = "skipped"
NOT_RUN: Final = "not_run"
OUTCOMES: Final = (KEPT, BROKEN, REFUSED, UNREACHABLE, SKIPPED, NOT_RUN)


@dataclass(frozen=True, slots=True)
class Verdict:
    """How one check ended. ``code`` is a code that the service gave."""

    name: str
    outcome: str
    ms: int = 0
    detail: str = ""
    code: str | None = None

    @property
    def is_failure(self) -> bool:
        return self.outcome in (BROKEN, REFUSED, UNREACHABLE)


def document(
    verdicts: Sequence[Verdict],
    *,
    url: str,
    expect: str,
    began: datetime,
    published: Mapping[str, Any],
    secrets: Sequence[str],
) -> dict[str, Any]:
    """The whole report. ``published`` is the deployment's metadata, as far as it was read.

    Secrets are withheld from what others say; details of verdicts have none.
    """
    counts = dict.fromkeys(OUTCOMES, 0)
    for verdict in verdicts:
        counts[verdict.outcome] += 1
    return {
        "schema": SCHEMA,
        "created_at": began.astimezone(UTC).isoformat(timespec="milliseconds"),
        "url": withheld(url, secrets),
        "expect": expect,
        "ok": not any(verdict.is_failure for verdict in verdicts),
        "counts": counts,
        "tool": {"psionic_csm": version(), "python": platform.python_version()},
        "deployment": dict(_deployment(published, secrets)),
        "checks": [asdict(verdict) for verdict in verdicts],
    }


def version() -> str:
    try:
        return metadata.version("psionic-csm-speech")
    except metadata.PackageNotFoundError:
        return "not_installed"


FACTS: Final = {
    "model": ("model",),
    "artifact_id": ("artifact_descriptor", "artifact_id"),
    "artifact_digest": ("governance", "artifact_hash"),
    "model_version": ("governance", "model_version"),
    "quantization": ("governance", "quantization"),
    "runtime_image_ref": ("governance", "runtime_image_ref"),
    "governance_schema": ("governance", "schema_version"),
    "voice_schema": ("governance", "voice_profile_governance_schema_version"),
    "missing_governance_blocks": ("governance", "missing_governance_blocks"),
    "rpc_schema": ("worker", "rpc_schema"),
    "runtime_state": ("runtime", "state"),
    "served_backend": ("runtime", "backend"),
    "execution_engine": ("runtime", "execution_engine"),
    "gpu_model": ("runtime", "gpu_model"),
}
REFUSAL_FACTS: Final = ("code", "reason", "pending_phases")
WORKER_FACTS: Final = ("worker_id", "state", "served_backend", "image_ref", "determinism_class")


def _deployment(published: Mapping[str, Any], secrets: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """Which deployment it was: null for what it does not say. All names are ours."""

    def picked(value: Any, names: Sequence[str]) -> dict[str, Any]:
        return {name: withheld(_at(value, (name,)), secrets) for name in names}

    for name, path in FACTS.items():
        yield name, withheld(_at(published, path), secrets)
    refusal = _at(published, ("runtime", "refusal"))
    yield "refusal", None if refusal is None else picked(refusal, REFUSAL_FACTS)
    voices = _list(published.get("voice_profiles"))
    yield "voice_profile_ids", [withheld(_at(each, ("id",)), secrets) for each in voices]
    yield "workers", [picked(each, WORKER_FACTS) for each in _list(published.get("workers"))]


def _at(value: Any, path: Sequence[str]) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
