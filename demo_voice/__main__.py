"""``python -m demo_voice STAGE``: make the demo's voice, or a part of it.

Each stage first does what it needs of the stages before. What is done is not done again.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import torch

from demo_voice.paths import Workshop
from demo_voice.profiles import PROFILES
from demo_voice.progress import Tell, spell
from shared.variables import read_cache_dir

STAGES: Final = ("speech", "codec", "encode", "decoder", "listen", "model", "export", "evaluate")
SHIP: Final = "ship"


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    torch.set_num_threads(options.threads)
    work = options.work or read_cache_dir() / "demo-voice"
    workshop = Workshop(work, PROFILES[options.profile])
    began = time.monotonic()

    def tell(line: str) -> None:
        sys.stdout.write(f"[{spell(time.monotonic() - began)}] {line}\n")
        sys.stdout.flush()

    for stage in _stages(options.stage):
        tell(f"stage {stage}")
        run_stage(stage, workshop, options, tell)
    return 0


def _stages(asked: str) -> tuple[str, ...]:
    """``asked`` and all that it needs; shipping is never done unasked, and alone."""
    if asked == SHIP:
        return (SHIP,)
    return STAGES if asked == "all" else STAGES[: STAGES.index(asked) + 1]


def run_stage(stage: str, workshop: Workshop, options: argparse.Namespace, tell: Tell) -> None:
    """One stage of ``STAGES``, or ``SHIP``."""
    if stage == "speech":
        from demo_voice.speech import record

        record(workshop, tell, options.processes)
    elif stage == "codec":
        from demo_voice.autoencoder import train_autoencoder

        train_autoencoder(workshop, tell)
    elif stage == "encode":
        from demo_voice.encoding import fit_codebooks

        fit_codebooks(workshop, tell)
    elif stage == "decoder":
        from demo_voice.decoder import train_decoder

        train_decoder(workshop, tell)
    elif stage == "listen":
        from demo_voice.yardsticks import listen

        listen(workshop, options.on, tell)
    elif stage == "model":
        from demo_voice.teacher import train_model

        train_model(workshop, tell)
    elif stage == "export":
        from demo_voice.export import export

        export(workshop, tell)
    elif stage == SHIP:
        from demo_voice.export import ship

        ship(workshop, tell)
    else:
        from demo_voice.evaluation import evaluate

        evaluate(workshop, options.on, tell, options.url)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m demo_voice", description=__doc__)
    parser.add_argument("stage", choices=(*STAGES, "all", SHIP))
    parser.add_argument("--profile", choices=sorted(PROFILES), default="full")
    parser.add_argument("--work", type=Path, help="folder for all files (default: in the cache)")
    parser.add_argument("--threads", type=int, default=1, help="torch's threads (default 1)")
    parser.add_argument("--processes", type=int, default=1, help="of the speech stage (default 1)")
    parser.add_argument("--url", help="a deployment to evaluate, instead of the engine alone")
    parser.add_argument(
        "--on",
        choices=("validation", "test", "benchmark"),
        default="validation",
        help="sentences to evaluate on; test only for a figure that is published",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
