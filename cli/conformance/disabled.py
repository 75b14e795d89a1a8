"""A deployment whose runtime is off: it says so everywhere, refuses at once, and never hangs."""

from __future__ import annotations

from typing import Any

from cli.conformance.documents import coherent, document
from cli.conformance.envelope import refused
from cli.conformance.promise import Broken, Remark, promised, same
from cli.conformance.run import Run
from cli.conformance.shapes import has_headers
from cli.conformance.speech import NOT_ALWAYS
from cli.conformance.streams import request
from gateway import service_answers
from gateway.formats import AUDIO, JSONL, MULTIPART, SSE
from gateway.header_table import CALL
from shared.errors import BACKEND_UNAVAILABLE, CODES
from shared.paths import HEALTH, OPENAI_SPEECH, READY, SPEECH


def not_ready(run: Run) -> Remark:
    """``/health/ready`` says no, with codes."""
    reply = run.wire.get(READY)
    same("the status", 503, reply.status)
    found = reply.object()
    same("status", "not_ready", found.get("status"))
    reasons = found.get("reasons")
    if not isinstance(reasons, list) or not reasons:
        raise Broken("there is no reason")
    return listed(reasons)


def health(run: Run) -> Remark:
    """200 and the whole document all the same, with the refusal and what is pending."""
    found = document(run, HEALTH)
    coherent(found, service_answers.Health)
    return _unavailable(found)


def metadata(run: Run) -> Remark:
    """No worker is ready, and each that lives says why."""
    coherent(run.metadata, service_answers.Metadata)
    for worker in run.metadata["workers"]:
        promised(worker["state"] != "ready", "a worker is ready")
        if worker["state"] == "unavailable":
            promised(worker["refusal"] is not None, "an unavailable worker gives no refusal")
    return _unavailable(run.metadata)


def speech(run: Run) -> str:
    """Refused by either route, with the code that the documents give."""
    code = ""
    for path in (SPEECH, OPENAI_SPEECH):
        body = run.speech("disabled")
        code = _refused(run, path, body)
    return code


def streams(run: Run) -> str:
    """Whatever the framing, a plain HTTP error: nothing has begun."""
    code = ""
    for name in (MULTIPART, JSONL, AUDIO, SSE):
        code = _refused(run, SPEECH, request(run, name, "disabled"))
    return code


def _unavailable(found: dict[str, Any]) -> Remark:
    runtime = found["runtime"]
    same("status", "degraded", found["status"])
    promised(runtime["state"] in ("loading", "unavailable"), "the runtime is ready")
    if runtime["state"] == "loading":
        return Remark("loading")
    refusal = runtime["refusal"]
    promised(refusal is not None, "an unavailable runtime gives no refusal")
    promised(bool(refusal["pending_phases"]), "nothing is pending")
    for name in ("backend", "execution_engine"):
        same(f"runtime.{name}", "none", runtime[name])
    same("runtime.residency", "unavailable", runtime["residency"])
    return listed([refusal["code"], *refusal["pending_phases"]])


def listed(values: list[Any]) -> Remark:
    return Remark(", ".join("{}" for _ in values), *values)


def _refused(run: Run, path: str, body: dict[str, Any]) -> str:
    reply = run.wire.post(path, body)
    code = refused(reply, *_expected(run), request_id=body["request_id"])
    has_headers(reply.headers, CALL, but_for=NOT_ALWAYS)
    same("x-psionic-served-backend", "none", reply.headers["x-psionic-served-backend"])
    promised(reply.headers["x-psionic-runtime-state"] != "ready", "a refusal says that it is ready")
    return code


def _expected(run: Run) -> tuple[str, ...]:
    """The documents' code, where it is one for callers."""
    refusal = run.metadata["runtime"]["refusal"]
    if refusal is None:
        return ("runtime_unavailable",)
    code = str(refusal["code"])
    is_for_callers = code in CODES and CODES[code].type == BACKEND_UNAVAILABLE
    return (code,) if is_for_callers else ("no_ready_worker",)
