"""Throughput against lanes as a small SVG, written by hand: no plotting library is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from xml.sax.saxutils import escape

from benchmarks.records import Report

WIDTH, HEIGHT = 640, 400
LEFT, RIGHT, TOP, BOTTOM = 60, 20, 40, 50
OURS, THEIRS, LIMIT = "#1f6feb", "#d1571f", "#8b949e"

Point = tuple[float, float]


def svg(report: Report) -> str:
    """Frames per second of all lanes; dashed, what the machine's memory would allow."""
    ours = [(float(each.lanes), each.frames_per_s) for each in report.lanes]
    theirs = [(float(each.batch), each.frames_per_s) for each in report.oracle]
    most = max(x for x, _ in ours + theirs)
    top = 1.15 * max(y for _, y in ours + theirs)

    def place(point: Point) -> Point:
        x, y = point
        across, up = (WIDTH - LEFT - RIGHT) * x / most, (HEIGHT - TOP - BOTTOM) * y / top
        return LEFT + across, HEIGHT - BOTTOM - up

    limit_end = min(most, top * report.floor_s)
    body = [
        *_axes(ours, top, place),
        line([(0.0, 0.0), (limit_end, limit_end / report.floor_s)], LIMIT, place, dashes="6 4"),
        *_series(ours, OURS, place),
        *_series(theirs, THEIRS, place),
        *_legend(bool(theirs)),
        label(WIDTH / 2, 22, _title(report), anchor="middle", size=14),
    ]
    return picture(body, HEIGHT)


def picture(body: Iterable[str], height: int) -> str:
    """The whole file."""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
            'font-family="sans-serif">',
            f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
            *body,
            "</svg>\n",
        ]
    )


def _title(report: Report) -> str:
    m, s = report.machine, report.subject
    return f"Frames per second, {s.size} size, {s.dtype}, {m.processor}, {m.threads} threads"


def _axes(ours: Sequence[Point], top: float, place: Callable[[Point], Point]) -> Iterator[str]:
    left, floor = place((0, 0))
    yield f'<path d="M{left} {TOP}V{floor}H{WIDTH - RIGHT}" fill="none" stroke="black"/>'
    for x, _ in ours:
        yield label(place((x, 0))[0], floor + 18, f"{x:g}", anchor="middle")
    for part in range(5):
        y = top * part / 4
        yield label(left - 6, place((0, y))[1] + 4, f"{y:.3g}", anchor="end")
    yield label((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, "lanes", anchor="middle")


def _series(points: Sequence[Point], colour: str, place: Callable[[Point], Point]) -> Iterator[str]:
    if points:
        yield line(points, colour, place)
    for point in points:
        x, y = place(point)
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>'
        yield label(x, y - 9, f"{point[1]:.2f}", anchor="middle")


def line(
    points: Sequence[Point],
    colour: str,
    place: Callable[[Point], Point],
    dashes: str = "none",
) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in map(place, points))
    return (
        f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2" '
        f'stroke-dasharray="{dashes}"/>'
    )


def _legend(has_oracle: bool) -> Iterator[str]:
    entries = [("psionic csm", OURS), ("bound by memory bandwidth", LIMIT)]
    if has_oracle:
        entries.insert(1, ("transformers", THEIRS))
    for row, (name, colour) in enumerate(entries):
        y = TOP + 16 + 18 * row
        yield f'<rect x="{LEFT + 14}" y="{y - 9}" width="12" height="10" fill="{colour}"/>'
        yield label(LEFT + 32, y, name)


def label(x: float, y: float, text: str, *, anchor: str = "start", size: int = 12) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">'
        f"{escape(text)}</text>"
    )
