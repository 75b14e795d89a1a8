"""A report of made-up numbers that are easy to reckon with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from benchmarks.records import (
    FirstAudio,
    Join,
    Lanes,
    Loading,
    Machine,
    Oracle,
    Overhead,
    Prefill,
    Report,
    Spread,
    Subject,
)


def at(seconds: float) -> Spread:
    return Spread(seconds, seconds, seconds, 4)


def report(**changes: Any) -> Report:
    """transformers takes 0.5 s at batch 1; our 1 lane 0.4 s, our 8 lanes 0.64 s."""
    base = Report(
        machine=Machine("Abacus", 2, 2, "AVX512", "3.11.0", "2.9", "0.2", "4.57", 0.1, 0.2),
        subject=Subject("full", "id", "built now", "bfloat16", 32, 1_000_000_000, 8_000_000_000),
        read_bytes_per_s=at(20e9),
        lanes=(Lanes(1, at(0.4), at(0.01)), Lanes(8, at(0.64), at(0.04))),
        oracle=(Oracle(1, at(0.5)), Oracle(4, at(0.8))),
        prefill=(Prefill("text alone", 17, at(0.1)),),
        first_audio=FirstAudio(4, at(0.5), at(0.55), 420),
        join=Join(8, 500, 16, 16, at(0.64), at(0.3), at(0.95), 1.1),
        overhead=Overhead(8, 0.04, 0.02, 3000, (("aten::mm", 0.9),)),
        loading=Loading(4.0, 400, 1200, 1000, 800, 810, "bfloat16"),
        peak_rss_bytes=9_000_000_000,
        seconds=100.0,
        bounds=(),
        notes=(),
    )
    return replace(base, **changes)
