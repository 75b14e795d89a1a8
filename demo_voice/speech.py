"""The corpus spoken, laid on the grid and stored in shards that a second run does not make again.

A shard is ``NNNN.npy`` (int16, utterance after utterance, whole frames) and ``NNNN.json`` (each
utterance's text, style, frames, the word of each frame, the phones of each 20 ms).
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from demo_voice.alignment import align
from demo_voice.corpus import Line, kept, make_corpus, write_corpus
from demo_voice.flite import PAUSE, Phone, speak
from demo_voice.grid import HOPS, lay, times, word_of_frame
from demo_voice.paths import Workshop, replace_whole
from demo_voice.pcm import to_pcm16
from demo_voice.profiles import Style
from demo_voice.progress import Progress, Tell
from demo_voice.vocoder import vocode
from demo_voice.words import VOCABULARY, words_of
from shared.wav import FRAME_SAMPLES

SHARD: Final = 200
PHONES_A_FRAME: Final = 4
Alone = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class Spoken:
    """One utterance on the grid.

    ``words`` is the word of each frame (one past the last where it has ended), ``phones`` the phone
    in the middle of each 20 ms, four for a frame.
    """

    text: str
    kind: str
    style: int
    frames: int
    words: tuple[int, ...]
    phones: tuple[str, ...]


def record(workshop: Workshop, tell: Tell, processes: int = 1) -> None:
    """Speak corpus, validation sentences and prompts. Goes on where it was interrupted."""
    folder, styles = workshop.speech, workshop.profile.styles
    lines = make_corpus(workshop.profile)
    write_corpus(folder / "corpus.jsonl", lines)
    lines += [Line(text, "validation", 0) for text in kept("validation")]
    lines += [Line(workshop.profile.prompt, "prompt", style) for style in range(len(styles))]
    alone = words_alone(workshop)
    shards = [
        (start // SHARD, lines[start : start + SHARD]) for start in range(0, len(lines), SHARD)
    ]
    todo = [shard for shard in shards if not (folder / f"{shard[0]:04}.json").exists()]
    progress = Progress("speech", len(shards), tell, len(shards) - len(todo))
    with ProcessPoolExecutor(processes) as pool:
        for _ in pool.map(partial(_record_shard, folder, styles, alone), todo):
            progress.advance()


def read_spoken(folder: Path) -> list[Spoken]:
    """Every utterance, in the corpus's order."""
    found: list[Spoken] = []
    for path in sorted(folder.glob("[0-9]*.json")):
        for each in json.loads(path.read_text()):
            words, phones = tuple(each.pop("words")), tuple(each.pop("phones"))
            found.append(Spoken(**each, words=words, phones=phones))
    return found


def read_waves(folder: Path) -> Iterator[tuple[Spoken, NDArray[np.int16]]]:
    """Every utterance with its samples at 24 kHz, mapped from the shards."""
    shards = [np.load(path, mmap_mode="r") for path in sorted(folder.glob("[0-9]*.npy"))]
    spoken = iter(read_spoken(folder))
    for shard in shards:
        begin = 0
        while begin < len(shard):
            each = next(spoken)
            end = begin + each.frames * FRAME_SAMPLES
            yield each, shard[begin:end]
            begin = end


def pronounce(line: Line, style: Style, alone: Alone) -> tuple[Spoken, NDArray[np.int16]] | None:
    """One line on the grid, or None where its words and phones can't be matched."""
    utterance = speak(line.text, style)
    spans = align(utterance.phones, words_of(line.text), alone)
    if spans is None:
        return None
    pieces = lay(spans)
    when = times(pieces)
    wave = vocode(utterance.wave, utterance.phones, when)
    samples = to_pcm16(wave)
    middles = when[HOPS // PHONES_A_FRAME // 2 :: HOPS // PHONES_A_FRAME]
    spoken = Spoken(
        line.text,
        line.kind,
        line.style,
        len(samples) // FRAME_SAMPLES,
        tuple(word_of_frame(pieces)),
        tuple(_phones_at(utterance.phones, middles)),
    )
    return spoken, samples


def _phones_at(phones: Sequence[Phone], when: NDArray[np.float64]) -> list[str]:
    ends = [phone.end for phone in phones]
    index = np.searchsorted(ends, when).clip(0, len(phones) - 1)
    return [phones[place].name for place in index]


def words_alone(workshop: Workshop) -> dict[str, list[str]]:
    """The phones of each word said alone; they don't depend on the rate."""
    path, style = workshop.speech / "alone.json", workshop.profile.styles[0]
    if path.exists():
        known: dict[str, list[str]] = json.loads(path.read_text())
        return known
    with ThreadPoolExecutor(2) as pool:
        spoken = list(pool.map(lambda word: speak(word, style), VOCABULARY))
    alone = {
        word: [phone.name for phone in each.phones if phone.name != PAUSE]
        for word, each in zip(VOCABULARY, spoken, strict=True)
    }
    replace_whole(path, json.dumps(alone).encode())
    return alone


def _record_shard(
    folder: Path, styles: Sequence[Style], alone: Alone, shard: tuple[int, list[Line]]
) -> None:
    number, lines = shard
    made = [pronounce(line, styles[line.style], alone) for line in lines]
    whole = [each for each in made if each is not None]
    samples = io.BytesIO()
    np.save(samples, np.concatenate([wave for _, wave in whole]))
    replace_whole(folder / f"{number:04}.npy", samples.getvalue())
    entries: list[dict[str, Any]] = [asdict(spoken) for spoken, _ in whole]
    replace_whole(folder / f"{number:04}.json", json.dumps(entries).encode())
