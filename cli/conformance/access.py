"""Who is let in: where a key is needed, nobody gets in without it, or with another."""

from __future__ import annotations

from cli.conformance.documents import document
from cli.conformance.envelope import refused
from cli.conformance.promise import Skipped, promised, same
from cli.conformance.run import Run
from gateway.operations import operations
from shared.paths import CONSOLE, DESCRIPTION, HEALTH, LIVE


def console(run: Run) -> None:
    """The page is for everybody, loads nothing from elsewhere, and holds nothing of anybody."""
    reply = run.wire.get(CONSOLE, with_key=False)
    same("the status", 200, reply.status)
    same("the content type", "text/html; charset=utf-8", reply.headers.get("content-type"))
    policy = reply.headers.get("content-security-policy", "")
    for rule in ("default-src 'none'", "connect-src 'self'", "frame-ancestors 'none'"):
        promised(rule in policy, f"its content security policy lacks {rule}")


def authentication(run: Run) -> str:
    """Without a key, or with a wrong one, only what is public answers.

    Whoever brings a key expects that, whatever a deployment says of itself.
    """
    says_so = bool(document(run, DESCRIPTION).get("security"))
    if not says_so and run.api_key is None:
        raise Skipped("this deployment asks for no key")
    _closed(run, "without a key", {})
    _closed(run, "with a wrong key", {"authorization": f"Bearer {run.id('wrong')}"})
    for path in (HEALTH, LIVE):
        same(f"the status of {path}", 200, run.wire.get(path, with_key=False).status)
    promised(says_so, "the OpenAPI document doesn't say that a key is needed")
    return "a key is needed"


def _closed(run: Run, how: str, headers: dict[str, str]) -> None:
    """Everything that isn't public refuses whoever sends these headers. Raises Broken."""
    for operation in operations(()):
        if not operation.public:
            method, path = operation.method.upper(), operation.path
            body: dict[str, str] | None = None if operation.body is None else {}
            named = path.format(request_id=run.id("none"))
            reply = run.wire.ask(method, named, body, headers=headers, with_key=False)
            promised(reply.status == 401, f"{method} {path} {how} is HTTP {reply.status}, not 401")
            refused(reply, "unauthorized")
