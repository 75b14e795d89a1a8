"""Where each stage keeps its files, below the work folder, and what makes them another's.

A stage's folder carries the stamp of the recipe that fills it. With another stamp it is emptied:
neither another profile nor a changed recipe ever goes on with a former one's files.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from demo_voice.corpus import SENTENCES
from demo_voice.grammar import RULES
from demo_voice.profiles import Profile
from demo_voice.words import CATEGORIES
from shared.digests import sha256_hex

RECIPE: Final = 1
"""Raised whenever code changes what a stage makes of the same profile and sentences."""
_STAMP: Final = "stamp"
_PLACES: Final = {
    "speech": ("utterances", "styles", "seed", "isolated_share", "free_share", "prompt"),
    "codec": (
        "mimi_filters",
        "mimi_dim",
        "mimi_layers",
        "codebook_dim",
        "codebook_size",
        "live_codebooks",
        "autoencoder",
        "decoder",
        "fit_frames",
    ),
    "model": ("backbone", "depth", "teacher"),
    "artifact": ("model_id", "model_version"),
    "report": ("evaluated",),
}
"""Each stage's folder and the fields of the profile that it adds to those of the stages before."""


@dataclass(frozen=True, slots=True)
class Workshop:
    """The folders of one profile, made and stamped as they are asked for."""

    root: Path
    profile: Profile

    @property
    def speech(self) -> Path:
        return self._folder("speech")

    @property
    def codec(self) -> Path:
        return self._folder("codec")

    @property
    def model(self) -> Path:
        return self._folder("model")

    @property
    def artifact(self) -> Path:
        return self._folder("artifact") / "demo"

    @property
    def report(self) -> Path:
        return self._folder("report")

    def _folder(self, name: str) -> Path:
        folder = self.root / self.profile.name / name
        stamp = self._stamp(name)
        path = folder / _STAMP
        if path.exists() and path.read_text() == stamp:
            return folder
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        path.write_text(stamp)
        return folder

    def _stamp(self, name: str) -> str:
        known = asdict(self.profile)
        names = list(_PLACES)
        fields = [field for place in names[: names.index(name) + 1] for field in _PLACES[place]]
        kept = [path.read_text() for path in sorted(SENTENCES.glob("*.txt"))]
        texts = {"recipe": RECIPE, "words": CATEGORIES, "rules": RULES, "kept": kept}
        recipe = {field: known[field] for field in fields} | texts
        return sha256_hex(json.dumps(recipe, sort_keys=True).encode())


def replace_whole(path: Path, data: bytes) -> None:
    """Write a file so that it is there whole or as it was."""
    part = path.with_suffix(f"{path.suffix}.part")
    part.write_bytes(data)
    part.replace(path)
