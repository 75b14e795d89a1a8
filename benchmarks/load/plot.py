"""Depth over time and latencies by percentile, as one small SVG."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.load.records import LoadReport, Phase
from benchmarks.plot import LEFT, LIMIT, OURS, RIGHT, THEIRS, WIDTH, Point, label, line, picture

HEIGHT: Final = 620
COLOURS: Final = (OURS, THEIRS)
PARTS: Final = 4


@dataclass(frozen=True, slots=True)
class Panel:
    """A part of the picture, from ``top`` to ``bottom``, for x and y from 0 to these."""

    title: str
    top: float
    bottom: float
    most_x: float
    most_y: float
    unit_x: str

    def place(self, point: Point) -> Point:
        x, y = point
        across = (WIDTH - LEFT - RIGHT) * x / self.most_x
        return LEFT + across, self.bottom - (self.bottom - self.top) * y / self.most_y

    def frame(self) -> Iterator[str]:
        yield (
            f'<path d="M{LEFT} {self.top}V{self.bottom}H{WIDTH - RIGHT}" '
            'fill="none" stroke="black"/>'
        )
        yield label(LEFT, self.top - 12, self.title, size=14)
        for part in range(PARTS + 1):
            x, y = self.most_x * part / PARTS, self.most_y * part / PARTS
            yield label(
                self.place((x, 0))[0], self.bottom + 18, f"{x:.3g}{self.unit_x}", anchor="middle"
            )
            yield label(LEFT - 6, self.place((0, y))[1] + 4, f"{y:.3g}", anchor="end")


def svg(report: LoadReport) -> str:
    """One colour a phase. Dashed: the depth's bound; the total time beside the first audio."""
    return picture([*_depth(report), *_latencies(report)], HEIGHT)


def _depth(report: LoadReport) -> Iterator[str]:
    bound = report.depth_bound or 0
    most = max([bound, 1, *(phase.most_depth for phase in report.phases)])
    seconds = sum(phase.seconds for phase in report.phases)
    panel = Panel("Waiting jobs, over time", 50, 260, seconds, 1.15 * most, " s")
    yield from panel.frame()
    if bound:
        limit = [(0.0, float(bound)), (seconds, float(bound))]
        yield line(limit, LIMIT, panel.place, dashes="6 4")
    began = 0.0
    for number, phase in enumerate(report.phases):
        points = [(began + each.at_s, float(each.depth)) for each in phase.samples]
        yield from _curve([each for each in points if each[0] <= seconds], number, panel.place)
        yield _named(panel, number, phase)
        began += phase.seconds


def _latencies(report: LoadReport) -> Iterator[str]:
    totals = [call.total_s or 0.0 for phase in report.phases for call in phase.good]
    most = max([*totals, 0.1])
    title = "Seconds to the first audio, dashed to the end, by percentile"
    panel = Panel(title, 340, 570, 100, 1.05 * most, " %")
    yield from panel.frame()
    for number, phase in enumerate(report.phases):
        first = [call.first_audio_s for call in phase.good if call.first_audio_s is not None]
        total = [call.total_s for call in phase.good if call.total_s is not None]
        yield from _curve(_percentiles(first), number, panel.place)
        yield from _curve(_percentiles(total), number, panel.place, dashes="6 4")
        yield _named(panel, number, phase)


def _curve(
    points: Sequence[Point], number: int, place: Callable[[Point], Point], dashes: str = "none"
) -> Iterator[str]:
    if points:
        yield line(points, COLOURS[number % len(COLOURS)], place, dashes=dashes)


def _percentiles(samples: Sequence[float]) -> list[Point]:
    """At most a hundred points of the ordered samples."""
    ordered = sorted(samples)
    if not ordered:
        return []
    ranks = range(1, 101)
    return [(float(rank), ordered[max(0, -(-rank * len(ordered) // 100) - 1)]) for rank in ranks]


def _named(panel: Panel, number: int, phase: Phase) -> str:
    y = panel.top + 14 + 16 * number
    colour = COLOURS[number % len(COLOURS)]
    name = f"{phase.name}, {phase.load:g} x capacity"
    return f'<rect x="{LEFT + 14}" y="{y - 9}" width="12" height="10" fill="{colour}"/>' + label(
        LEFT + 32, y, name
    )
