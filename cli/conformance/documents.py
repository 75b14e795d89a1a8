"""The documents: every key, of its type, and facts that agree with each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families

from cli.conformance.promise import Broken, Remark, promised, same
from cli.conformance.run import Run
from cli.conformance.shapes import fits
from gateway import service_answers
from gateway.operations import operations
from shared import paths
from shared.metrics import CONTENT_TYPE

READY: Final = "ready"
CONSTANTS: Final = {
    "capability": "speech_generation",
    "execution_mode": "native",
    "supported_endpoints": [paths.OPENAI_SPEECH, paths.SPEECH],
}
WORKER_CONSTANTS: Final = {
    "worker_id": "psionic.csm_speech.worker.v1",
    "rpc_schema": "psionic.csm.speech.worker.v1",
    "idempotency_key": "request_id",
    "cancellation": "preemptive_between_frames",
    "business_authority": "none_provider_output_is_evidence_not_instruction",
}
LOADS: Final = ("queue_depth", "in_flight_requests", "capacity_lanes")
METRICS: Final = ("psionic_csm_requests", "psionic_csm_redis_up", "psionic_csm_open_requests")


def document(run: Run, path: str) -> dict[str, Any]:
    """A document that is answered with 200. Raises Broken."""
    reply = run.wire.get(path)
    same("the status", 200, reply.status)
    return reply.object()


def live(run: Run) -> None:
    same("the document", {"status": "live"}, document(run, paths.LIVE))


def ready(run: Run) -> None:
    same("the document", {"status": "ready"}, document(run, paths.READY))


def health(run: Run) -> None:
    """``/health`` has every key, and says that it is well."""
    found = document(run, paths.HEALTH)
    coherent(found, service_answers.Health)
    same("status", "ok", found["status"])
    serving(found["runtime"])


def metadata(run: Run) -> Remark:
    """As ``/health``, and the workers, of whom one serves the default artifact."""
    found = run.metadata
    coherent(found, service_answers.Metadata)
    serving(found["runtime"])
    for worker in found["workers"]:
        if worker["state"] == READY:
            as_asked(worker["requested_backend"], worker["served_backend"], worker)
    able = [
        worker
        for worker in found["workers"]
        if worker["state"] == READY and worker["artifact_id"] == run.artifact_id
    ]
    promised(bool(able), "it is ready, and no worker is that serves the default artifact")
    return Remark(f"{len(able)} ready of {len(found['workers'])}, {{}}", found["served_backend"])


def models(run: Run) -> None:
    """One card, which repeats the sections of ``/health``."""
    found = document(run, paths.MODELS)
    fits(service_answers.Models, found, "the models")
    same("object", "list", found["object"])
    same("the number of cards", 1, len(found["data"]))
    card = found["data"][0]
    same("the card's id", run.metadata["model"], card["id"])
    for name in ("voice_profiles", "artifact_digests", "artifact_descriptor", "governance"):
        promised(
            card[f"psionic_{name}"] == run.metadata[name], f"psionic_{name} is not that of /health"
        )


def load(run: Run) -> str:
    """Sums that are those of its rows."""
    found = document(run, paths.LOAD)
    fits(service_answers.Load, found, "the load")
    for name in LOADS:
        same(f"the sum of {name}", sum(row[name] for row in found["artifacts"]), found[name])
    named = [row["artifact_id"] for row in found["artifacts"]]
    promised(run.artifact_id in named, "the default artifact has no row")
    return f"{found['in_flight_requests']} of {found['capacity_lanes']} lanes"


def metrics(run: Run) -> str:
    """Prometheus's text form, without a key, with nothing of any request in it."""
    reply = run.wire.get(paths.METRICS, with_key=False)
    same("the status", 200, reply.status)
    same("the content type", CONTENT_TYPE, reply.headers.get("content-type"))
    try:
        families = list(text_string_to_metric_families(reply.body.decode()))
    except ValueError as error:
        raise Broken("Prometheus could not read it") from error
    names = {family.name for family in families}
    for name in METRICS:
        promised(name in names, f"there is no {name}")
    promised(run.prefix.encode() not in reply.body, "a request's id is in it")
    return f"{len(names)} metrics"


def openapi(run: Run) -> str:
    """OpenAPI 3.1, with every route and its method."""
    found = document(run, paths.DESCRIPTION)
    version = found.get("openapi")
    promised(
        isinstance(version, str) and version.startswith("3.1."),
        "the version is {}, not 3.1",
        version,
    )
    described = found.get("paths")
    promised(isinstance(described, dict), "it has no paths")
    for operation in operations(()):
        methods = (described or {}).get(operation.path)
        is_there = isinstance(methods, dict) and operation.method in methods
        promised(is_there, f"it lacks {operation.method.upper()} {operation.path}")
    return f"{len(described or ())} paths"


def coherent(found: Mapping[str, Any], model: type[service_answers.Health]) -> None:
    """Holds the document to its keys and to itself. Raises Broken."""
    fits(model, found, "the document")
    for name, value in CONSTANTS.items():
        same(name, value, found[name])
    for name, value in WORKER_CONSTANTS.items():
        same(f"worker.{name}", value, found["worker"][name])
    runtime, governance = found["runtime"], found["governance"]
    same("served_backend", runtime["backend"], found["served_backend"])
    same("execution_engine", runtime["execution_engine"], found["execution_engine"])
    same("execution_refusal", runtime["refusal"], found.get("execution_refusal"))
    artifact_id = found["artifact_descriptor"]["artifact_id"]
    weights = found["artifact_digests"]["csm_model_digest"]
    same("the artifact's id", f"{found['artifact_descriptor']['model_id']}@{weights}", artifact_id)
    same("governance.artifact_id", artifact_id, governance["artifact_id"])
    same("governance.artifact_hash", weights, governance["artifact_hash"])
    voices = [voice["id"] for voice in found["voice_profiles"]]
    promised(bool(voices), "there is no voice")
    same("governance.allowed_voice_profile_ids", voices, governance["allowed_voice_profile_ids"])
    promised("wav" in found["supported_response_formats"], "wav is no supported format")


def serving(runtime: Mapping[str, Any]) -> None:
    """A ready runtime serves what was asked for, or says why not. Raises Broken."""
    same("runtime.state", READY, runtime["state"])
    same("runtime.refusal", None, runtime["refusal"])
    for part in ("tokenizer_loaded", "csm_config_loaded", "csm_model_loaded", "mimi_loaded"):
        same(f"runtime.{part}", True, runtime[part])
    as_asked(runtime["requested_backend"], runtime["backend"], runtime)


def as_asked(requested: Any, served: Any, said: Mapping[str, Any]) -> None:
    """Another backend than the one asked for is served only with a reason. Raises Broken."""
    promised(
        requested == served or bool(said["cpu_fallback_reason"]),
        "{} is served where {} was asked for, without a reason",
        served,
        requested,
    )
