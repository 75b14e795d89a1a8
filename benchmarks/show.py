"""A report as people read it: the same tables on a terminal and in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from benchmarks import arithmetic
from benchmarks.arithmetic import GB
from benchmarks.records import Bound, Report, Spread

VERDICTS = {True: "met", False: "NOT MET", None: "not judged"}


@dataclass(frozen=True, slots=True)
class Table:
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def tables(report: Report) -> Iterator[Table]:
    """All that a report holds, in reading order."""
    yield Table("Machine and model", ("what", "value"), tuple(_facts(report)))
    yield Table(
        "Frames, all lanes speaking",
        (
            "what",
            "s per frame",
            "frames/s",
            "RTF",
            "GB/s",
            "of the bound",
            "to transformers",
            "Mimi",
        ),
        tuple(_frames(report)),
    )
    yield Table(
        "Prompts",
        ("prompt", "positions", "seconds", "positions/s"),
        tuple(
            (each.name, str(each.positions), spread(each.seconds), f"{each.positions_per_s:.0f}")
            for each in report.prefill
        ),
    )
    yield Table("First audio, joining, loading", ("what", "value"), tuple(_rest(report)))
    yield bounds_table(report.bounds)


def spread(values: Spread, scale: float = 1.0, digits: int = 3) -> str:
    """The median and, in brackets, the quartiles."""
    low, high = values.low * scale, values.high * scale
    return f"{values.median * scale:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def print_report(report: Report, console: Console) -> None:
    print_tables(tables(report), report.notes, console)


def print_tables(shown_tables: Iterable[Table], notes: Iterable[str], console: Console) -> None:
    if not console.is_terminal:
        console.width = 200  # for a file or a pipe: never cut
    for each in shown_tables:
        shown = RichTable(title=each.title, title_justify="left", box=None, pad_edge=False)
        for column in each.columns:
            shown.add_column(column)
        for row in each.rows:
            shown.add_row(*map(Text, row))
        console.print(shown)
        console.print()
    for note in notes:
        console.print(Text(note))


def markdown_tables(shown_tables: Iterable[Table], notes: Iterable[str]) -> str:
    """As they stand in a page of the docs."""
    parts = []
    for each in shown_tables:
        head = [_line(each.columns), _line(["---"] * len(each.columns))]
        parts.append("\n".join([f"### {each.title}", "", *head, *map(_line, each.rows)]))
    return "\n\n".join([*parts, *notes]) + "\n"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _facts(report: Report) -> Iterator[tuple[str, str]]:
    m, s = report.machine, report.subject
    yield "processor", f"{m.processor}, {m.cores} cores, {m.threads} threads, {m.vector_unit}"
    yield (
        "versions",
        f"Python {m.python}, torch {m.torch}, moshi {m.moshi}, "
        + (f"transformers {m.transformers}" if m.transformers else "no transformers"),
    )
    yield "load average", f"{m.load_average_before} before, {m.load_average_after} after"
    trained = ", seeded, never trained" if s.is_seeded else ""
    yield "weights", f"{s.parameters / 1e9:.3f} billion, {s.dtype}{trained}"
    yield "artifact", s.artifact_id
    yield "where", s.origin
    yield "prefill chunk", f"{s.chunk} positions"
    yield "memory read", f"{spread(report.read_bytes_per_s, 1 / GB, 1)} GB/s, a streaming sum"
    yield "weights read per frame", f"{s.weight_bytes_per_frame / GB:.2f} GB, whatever the lanes"
    yield "bound by memory", f"{report.floor_s:.3f} s per frame"
    yield "peak memory of the run", _gb(report.peak_rss_bytes)
    yield "the run took", f"{report.seconds:.0f} s"


def _frames(report: Report) -> Iterator[tuple[str, ...]]:
    read = report.subject.weight_bytes_per_frame
    for ours in report.lanes:
        ratio = report.over_oracle(ours)
        yield (
            f"{ours.lanes} lane{'s' if ours.lanes > 1 else ''}",
            spread(ours.frame_s),
            f"{ours.frames_per_s:.2f}",
            f"{ours.rtf:.2f}",
            f"{read / ours.frame_s.median / GB:.1f}",
            f"{report.floor_s / ours.frame_s.median:.0%}",
            "-" if ratio is None else f"{ratio:.2f} x",
            f"{spread(ours.codec_s, 1000, 1)} ms",
        )
    for theirs in report.oracle:
        yield (
            f"transformers, batch {theirs.batch}",
            spread(theirs.frame_s),
            f"{theirs.frames_per_s:.2f}",
            f"{arithmetic.rtf(theirs.frame_s.median):.2f}",
            f"{read / theirs.frame_s.median / GB:.1f}",
            f"{report.floor_s / theirs.frame_s.median:.0%}",
            f"{theirs.frames_per_s / report.oracle[0].frames_per_s:.2f} x",
            "none",
        )


def _rest(report: Report) -> Iterator[tuple[str, str]]:
    audio, join, load, spent = report.first_audio, report.join, report.loading, report.overhead
    lanes = f"{audio.lanes} lane{'s' if audio.lanes > 1 else ''}, idle"
    yield f"first audio, {lanes}, no prompt", f"{spread(audio.plain_s)} s"
    yield (
        f"first audio, {lanes}, prompt of {audio.prompt_positions} positions cached",
        f"{spread(audio.prompted_s)} s, {audio.prompted_over_plain:.2f} x",
    )
    yield f"join: frames of {join.lanes - 1} lanes before it", f"{spread(join.undisturbed_s)} s"
    yield (
        f"join: frames while {join.positions} positions are taken in",
        f"{spread(join.gaps_s)} s, longest {join.longest_s:.3f} s",
    )
    yield "join: one chunk alone", f"{spread(join.chunk_s)} s"
    yield "load", f"{load.seconds:.1f} s as {load.dtype}, warm-up included, files in memory or not"
    yield "load: peak memory", f"{_gb(load.peak_rss_bytes)}, {_gb(load.base_rss_bytes)} before it"
    yield "load: kept", f"{_gb(load.kept_bytes)} of weights, caches and codec"
    yield "load: read", f"{_gb(load.read_bytes)} of {_gb(load.file_bytes)} in files"
    yield f"operators in a frame of {spent.lanes} lanes", str(spent.kernels)
    yield "heaviest operators", ", ".join(f"{name} {part:.0%}" for name, part in spent.heaviest[:5])


def bounds_table(bounds: Sequence[Bound]) -> Table:
    rows = ((each.name, each.promised, each.found, VERDICTS[each.met]) for each in bounds)
    return Table("Bounds", ("bound", "promised", "found", ""), tuple(rows))


def _gb(count: int) -> str:
    return f"{count / GB:.2f} GB"
