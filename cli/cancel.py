"""``psionic-csm cancel``: stop a request or a voice turn."""

from __future__ import annotations

from cli import show
from cli.client import GatewayClient, understood


def run(
    url: str,
    *,
    request_id: str | None,
    cancellation_id: str | None,
    api_key: str | None,
    as_json: bool,
) -> None:
    with GatewayClient(url, api_key=api_key) as client:
        report = client.cancel(request_id=request_id, cancellation_id=cancellation_id)
    if as_json:
        show.document(report)
        return
    with understood():
        hits = [(str(hit["request_id"]), str(hit["was"])) for hit in report["hits"]]
        is_remembered = report["remembered"]
    for hit in hits:
        show.facts([hit])
    if not hits:
        remembered = "remembered, in case it is on its way" if is_remembered else "forgotten"
        show.facts([("nothing was running or waiting", remembered)])
