"""Who is let in: the documents say whether a key is needed, and that holds."""

from __future__ import annotations

from cli.conformance.documents import document
from cli.conformance.envelope import refused
from cli.conformance.promise import Skipped, promised, same
from cli.conformance.run import Run
from shared.paths import CONSOLE, DESCRIPTION, HEALTH, LIVE, LOAD, METADATA, MODELS, SPEECH


def console(run: Run) -> None:
    """The page is for everybody, loads nothing from elsewhere, and holds nothing of anybody."""
    reply = run.wire.get(CONSOLE, with_key=False)
    same("the status", 200, reply.status)
    same("the content type", "text/html; charset=utf-8", reply.headers.get("content-type"))
    policy = reply.headers.get("content-security-policy", "")
    for rule in ("default-src 'none'", "connect-src 'self'", "frame-ancestors 'none'"):
        promised(rule in policy, f"its content security policy lacks {rule}")


def authentication(run: Run) -> str:
    """Without a key, or with a wrong one, only what is public answers."""
    if not document(run, DESCRIPTION).get("security"):
        raise Skipped("this deployment asks for no key")
    for path in (METADATA, MODELS, f"{SPEECH}/{run.id('none')}"):
        refused(run.wire.get(path, with_key=False), "unauthorized")
    wrong = {"authorization": f"Bearer {run.id('wrong')}"}
    refused(run.wire.get(LOAD, headers=wrong, with_key=False), "unauthorized")
    body = run.speech("keyless")
    refused(run.wire.ask("POST", SPEECH, body, with_key=False), "unauthorized")
    for path in (HEALTH, LIVE):
        same(f"the status of {path}", 200, run.wire.get(path, with_key=False).status)
    return "a key is needed"
