"""``psionic-csm smoke``: holds a deployment to the contract, check by check."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from rich.text import Text

from cli import show, streams
from cli.client import GatewayClient
from cli.conformance import report
from cli.conformance.plan import PLANS, Check
from cli.conformance.promise import Broken, Declined, Skipped
from cli.conformance.report import Verdict
from cli.conformance.run import TEXTS, Run
from cli.conformance.wire import Wire
from cli.exits import NOT_GENUINE, REFUSED, UNREACHABLE, CommandFailed
from shared.clock import monotonic_ms

EXITS: Final = {
    report.BROKEN: NOT_GENUINE,
    report.REFUSED: REFUSED,
    report.UNREACHABLE: UNREACHABLE,
}
STANDARD_OUTPUT: Final = Path("-")


@dataclass(frozen=True, slots=True)
class Wish:
    """What to hold to the contract, and how far to go."""

    url: str
    api_key: str | None
    expect: str
    timeout_s: float
    keep_going: bool
    report_file: Path | None


def run(wish: Wish) -> None:
    """A line per check as it ends, and the report. Raises CommandFailed for the first failure."""
    began = datetime.now(UTC)
    secrets = (*TEXTS, wish.api_key or "")
    table = Table(PLANS[wish.expect], secrets, is_shown=wish.report_file != STANDARD_OUTPUT)
    with GatewayClient(wish.url, api_key=wish.api_key) as client:
        session = Run(Wire(client, wish.timeout_s))
        for verdict in verdicts(PLANS[wish.expect], session, keep_going=wish.keep_going):
            table.add(verdict)
    if wish.report_file is not None:
        _write(
            wish.report_file,
            report.document(
                table.verdicts,
                url=client.shown_url,
                expect=wish.expect,
                began=began,
                published=session.published,
                secrets=secrets,
            ),
        )
    table.judge()


def verdicts(plan: Sequence[Check], session: Run, *, keep_going: bool) -> Iterator[Verdict]:
    """How each check of a plan ends; after the first failure, those that follow are not run."""
    has_failed = False
    for check in plan:
        if has_failed and not keep_going:
            yield Verdict(check.name, report.NOT_RUN)
            continue
        verdict = judged(check, session)
        has_failed = has_failed or verdict.is_failure
        yield verdict
        keep_going = keep_going and verdict.outcome != report.UNREACHABLE


def judged(check: Check, session: Run) -> Verdict:
    """How one check ends."""
    began = monotonic_ms()

    def ended(outcome: str, detail: str = "", code: str | None = None) -> Verdict:
        return Verdict(check.name, outcome, round(monotonic_ms() - began), detail, code)

    try:
        return ended(report.KEPT, check.keeps(session) or "")
    except Broken as broken:
        return ended(report.BROKEN, str(broken))
    except Declined as declined:
        return ended(report.REFUSED, str(declined), declined.code)
    except Skipped as skipped:
        return ended(report.SKIPPED, str(skipped))
    except CommandFailed as failed:
        is_away = failed.exit_code == UNREACHABLE
        details = "; ".join((failed.message, *failed.details))
        return ended(report.UNREACHABLE if is_away else report.BROKEN, details, failed.code)


class Table:
    """The verdicts so far, a line each."""

    def __init__(self, plan: Sequence[Check], secrets: Sequence[str], *, is_shown: bool) -> None:
        self.verdicts: list[Verdict] = []
        self._secrets = secrets
        self._is_shown = is_shown
        self._width = max(len(check.name) for check in plan)

    def add(self, verdict: Verdict) -> None:
        self.verdicts.append(verdict)
        if self._is_shown:
            took = f"{verdict.ms} ms" if verdict.outcome != report.NOT_RUN else ""
            line = (
                f"{verdict.outcome:11}  {verdict.name:{self._width}}  {took:>9}  "
                f"{self._said(verdict)}"
            )
            show.out().print(Text(line.rstrip()))

    def judge(self) -> None:
        """Raises CommandFailed for the first failure."""
        failures = [verdict for verdict in self.verdicts if verdict.is_failure]
        if failures:
            first = failures[0]
            more = f" ({len(failures)} checks failed)" if len(failures) > 1 else ""
            message = f"{first.name}: {self._said(first)}{more}"
            raise CommandFailed(EXITS[first.outcome], message, code=first.code)

    def _said(self, verdict: Verdict) -> str:
        return str(report.withholding(verdict.detail, self._secrets))


def _write(path: Path, document: dict[str, Any]) -> None:
    text = json.dumps(document, indent=2) + "\n"
    if path == STANDARD_OUTPUT:
        streams.write_text(text)
    else:
        path.write_text(text, encoding="utf-8")
