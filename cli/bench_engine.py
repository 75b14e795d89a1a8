"""``psionic-csm bench engine``: how fast the engine is on this machine."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cli import show
from cli.artifacts import open_artifact
from cli.exits import NOT_STARTED, USAGE, CommandFailed
from cli.extras import worker_extra
from cli.reports import check_places, write, write_json
from shared.cores import usable_cores
from shared.errors import SpeechError
from shared.variables import read_cache_dir

SIZES: Final = {"full": "bfloat16", "demo": "float32", "tiny": "float32"}
"""Sizes of model that can be measured, with the precision that each is measured in by itself."""
DTYPES: Final = ("bfloat16", "float32")


@dataclass(frozen=True, slots=True)
class EngineWish:
    """What was asked for on the command line."""

    size: str
    artifact: Path | None
    lanes: str
    frames: int
    threads: int | None
    chunk: int
    dtype: str | None
    report_file: Path | None
    plot_file: Path | None


def run(wish: EngineWish) -> None:
    """Measure, print the tables, write the files."""
    lanes, dtype = _lanes(wish.lanes), _dtype(wish)
    check_places(wish.report_file, wish.plot_file)
    with worker_extra("measuring"):
        from benchmarks import engine, plot
        from benchmarks.load_probe import ProbeFailed
        from benchmarks.show import print_report
    plan = engine.Plan(
        size=wish.size,
        artifact=open_artifact(wish.artifact).directory if wish.artifact else None,
        lanes=lanes,
        frames=wish.frames,
        threads=wish.threads or usable_cores(),
        chunk=wish.chunk,
        dtype=dtype,
        cache=read_cache_dir(),
    )
    try:
        with show.activity() as activity:
            report = engine.run(plan, activity)
    except SpeechError as error:
        raise CommandFailed(NOT_STARTED, error.message, code=error.code) from error
    except ProbeFailed as error:
        raise CommandFailed(
            NOT_STARTED, "the worker's load failed", details=tuple(str(error).splitlines())
        ) from error
    except OSError as error:
        raise CommandFailed.by(error, "can't build the weights: ") from error
    print_report(report, show.out())
    write_json(report, wish.report_file)
    if wish.plot_file is not None:
        write(wish.plot_file, plot.svg(report))


def _lanes(text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(re.fullmatch("[1-9][0-9]{0,2}", each) for each in parts):
        raise CommandFailed(USAGE, "--lanes takes numbers from 1 to 999, as 1,2,4,8")
    return tuple(sorted({int(part) for part in parts}))


def _dtype(wish: EngineWish) -> str:
    if wish.size not in SIZES:
        raise CommandFailed(USAGE, f"--size is one of {', '.join(SIZES)}")
    dtype = wish.dtype or SIZES[wish.size]
    if dtype not in DTYPES:
        raise CommandFailed(USAGE, f"--dtype is one of {', '.join(DTYPES)}")
    return dtype
