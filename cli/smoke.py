"""``psionic-csm smoke``: holds a deployment to the contract, check by check."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from rich.text import Text

from cli import audio_file, show
from cli.client import GatewayClient
from cli.conformance import report
from cli.conformance.plan import PLANS, Check
from cli.conformance.promise import Broken, Declined, Remark, Skipped
from cli.conformance.report import Verdict
from cli.conformance.run import Run
from cli.conformance.wire import Wire
from cli.conformance.withholding import withheld
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
    if wish.report_file not in (None, STANDARD_OUTPUT):
        audio_file.check_place(wish.report_file)
    began = datetime.now(UTC)
    table = Table(PLANS[wish.expect], is_shown=wish.report_file != STANDARD_OUTPUT)
    with GatewayClient(wish.url, api_key=wish.api_key) as client:
        session = Run(Wire(client, wish.timeout_s), wish.api_key)
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
                secrets=session.secrets,
            ),
        )
    table.raise_first_failure()


def verdicts(plan: Sequence[Check], session: Run, *, keep_going: bool) -> Iterator[Verdict]:
    """How each check of a plan ends; after the first failure, those that follow are not run."""
    has_failed = False
    for check in plan:
        if has_failed and not keep_going:
            yield Verdict(check.name, report.NOT_RUN)
            continue
        verdict = verdict_on(check, session)
        has_failed = has_failed or verdict.is_failure
        yield verdict
        keep_going = keep_going and verdict.outcome != report.UNREACHABLE


def verdict_on(check: Check, session: Run) -> Verdict:
    """How one check ends. What is said of it has no secrets."""
    began = monotonic_ms()

    def ended(outcome: str, detail: str | Remark = "", code: str | None = None) -> Verdict:
        told = detail.told(session.secrets) if isinstance(detail, Remark) else detail
        return Verdict(check.name, outcome, round(monotonic_ms() - began), told, code)

    try:
        return ended(report.KEPT, check.keeps(session) or "")
    except Broken as broken:
        return ended(report.BROKEN, broken.remark)
    except Declined as declined:
        return ended(report.REFUSED, str(declined), declined.code)
    except Skipped as skipped:
        return ended(report.SKIPPED, str(skipped))
    except CommandFailed as failed:
        is_away = failed.exit_code == UNREACHABLE
        details = withheld("; ".join((failed.message, *failed.details)), session.secrets)
        return ended(report.UNREACHABLE if is_away else report.BROKEN, details, failed.code)


class Table:
    """The verdicts so far, a line each."""

    def __init__(self, plan: Sequence[Check], *, is_shown: bool) -> None:
        self.verdicts: list[Verdict] = []
        self._is_shown = is_shown
        self._width = max(len(check.name) for check in plan)

    def add(self, verdict: Verdict) -> None:
        self.verdicts.append(verdict)
        if self._is_shown:
            took = f"{verdict.ms} ms" if verdict.outcome != report.NOT_RUN else ""
            line = (
                f"{verdict.outcome:11}  {verdict.name:{self._width}}  {took:>9}  {verdict.detail}"
            )
            show.out().print(Text(line.rstrip()))

    def raise_first_failure(self) -> None:
        """Raises CommandFailed for the first failure."""
        failures = [verdict for verdict in self.verdicts if verdict.is_failure]
        if failures:
            first = failures[0]
            more = f" ({len(failures)} checks failed)" if len(failures) > 1 else ""
            message = f"{first.name}: {first.detail}{more}"
            raise CommandFailed(EXITS[first.outcome], message, code=first.code)


def _write(path: Path, document: dict[str, Any]) -> None:
    text = json.dumps(document, indent=2) + "\n"
    audio_file.write(path, text.encode())
