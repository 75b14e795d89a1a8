"""Who is let in: the documents say whether a key is needed, and that holds."""

from __future__ import annotations

from cli.conformance.documents import document
from cli.conformance.envelope import refused
from cli.conformance.promise import Skipped, same
from cli.conformance.run import Run
from shared.paths import DESCRIPTION, HEALTH, LIVE, LOAD, METADATA, MODELS, SPEECH


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
