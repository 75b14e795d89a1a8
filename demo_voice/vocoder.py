"""Flat speech whose every frame is a function of its spectral envelope alone.

Every 10 ms an envelope (40 mel bands, minimum phase) is excited by one pulse and by a noise that
repeats with each 40 ms, above a cross-over that the phone decides. Pitch, phase and noise carry
nothing: a small codec can learn the waveform itself, and nothing in a frame is left to chance. The
price is a monotone voice of 100 Hz.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from demo_voice.flite import RATE, Phone
from shared.wav import SAMPLE_RATE

Array = NDArray[np.float64]

PERIOD: Final = 240
"""Samples between pulses: 100 Hz, eight in a frame."""
SPECTRUM: Final = 1024
BANDS: Final = 40
TOP_HZ: Final = 7_900.0
WINDOW: Final = 480
LEVEL: Final = 1.8
"""Makes speech of about -18 dBFS, its peaks within full scale, of what flite gives."""
_TAIL: Final = -(-SPECTRUM // PERIOD)
_VOICED_HZ: Final = 4_500.0
_CROSSOVER_HZ: Final = (
    dict.fromkeys(["p", "t", "k", "f", "th", "s", "sh", "ch", "hh", "pau"], 0.0)
    | dict.fromkeys(["z", "zh", "jh"], 1_200.0)
    | dict.fromkeys(["v", "dh"], 2_500.0)
    | dict.fromkeys(["b", "d", "g"], 3_000.0)
)
"""Below it a phone is voiced, above it noise; what is not named is voiced to ``_VOICED_HZ``."""


@dataclass(frozen=True, slots=True)
class _Tables:
    filters: Array
    centres: Array
    frequencies: Array
    noise: NDArray[np.complex128]


def vocode(wave: NDArray[np.float32], phones: Sequence[Phone], times: Array) -> NDArray[np.float32]:
    """24 kHz speech, 240 samples for each entry of ``times`` (seconds in ``wave``)."""
    tables = _tables()
    envelopes = _envelopes(wave, times, tables)
    voiced = _voicing(phones, times, tables.frequencies)
    return _excite(envelopes, voiced, tables) * np.float32(LEVEL)


@cache
def _tables() -> _Tables:
    def to_mel(hertz: float) -> float:
        return float(1127 * np.log1p(hertz / 700))

    edges = 700 * np.expm1(np.linspace(to_mel(50), to_mel(TOP_HZ), BANDS + 2) / 1127)
    bins = np.arange(257) * RATE / 512
    filters = np.zeros((BANDS, 257))
    for band, centre in enumerate(edges[1:-1]):
        low = min(edges[band], centre - 110)
        high = max(edges[band + 2], centre + 110)
        slopes = np.minimum((bins - low) / (centre - low), (high - bins) / (high - centre))
        filters[band] = np.clip(slopes, 0, None)
    filters /= filters.sum(axis=1, keepdims=True)
    noise = np.random.default_rng(0).standard_normal((4, PERIOD))
    noise /= np.sqrt((noise**2).sum(axis=1, keepdims=True))
    frequencies = np.arange(SPECTRUM // 2 + 1) * SAMPLE_RATE / SPECTRUM
    return _Tables(filters, edges[1:-1], frequencies, np.fft.rfft(noise, SPECTRUM, axis=-1))


def _envelopes(wave: NDArray[np.float32], times: Array, tables: _Tables) -> Array:
    """Log power at each of ``tables.frequencies``: [len(times), 513]."""
    window = np.hanning(WINDOW + 2)[1:-1]
    begins = np.rint(times * RATE).astype(np.int64) - WINDOW // 2
    padded = np.pad(wave.astype(np.float64), (WINDOW, WINDOW))
    index = np.clip(begins[:, None] + WINDOW + np.arange(WINDOW), 0, len(padded) - 1)
    power = np.abs(np.fft.rfft(padded[index] * window, 512)) ** 2 / (window**2).sum()
    bands = np.log(power @ tables.filters.T + 1e-9)
    where = np.interp(tables.frequencies, tables.centres, np.arange(BANDS))
    low = np.clip(np.floor(where).astype(np.int64), 0, BANDS - 2)
    part = where - low
    smooth: Array = bands[:, low] * (1 - part) + bands[:, low + 1] * part
    above = np.clip(tables.frequencies - TOP_HZ, 0, None)
    shaped: Array = smooth - above / 400 * 3 - np.where(tables.frequencies < 70, 4.0, 0.0)
    return shaped


def _voicing(phones: Sequence[Phone], times: Array, frequencies: Array) -> Array:
    """The share of the pulse at each time and frequency, [len(times), 513]."""
    ends = np.array([phone.end for phone in phones])
    index = np.searchsorted(ends, times).clip(0, len(phones) - 1)
    cuts = np.array([_CROSSOVER_HZ.get(phone.name, _VOICED_HZ) for phone in phones])[index]
    cuts = np.convolve(np.pad(cuts, 1, mode="edge"), [0.25, 0.5, 0.25], "valid")
    share: Array = 1 / (1 + np.exp(np.clip((frequencies - cuts[:, None]) / 250, -30, 30)))
    share[cuts < 200] = 1e-4
    return share


def _excite(envelopes: Array, voiced: Array, tables: _Tables) -> NDArray[np.float32]:
    count = len(envelopes)
    pulse = _minimum_phase(0.5 * (envelopes + np.log(voiced + 1e-6)))
    hiss = _minimum_phase(0.5 * (envelopes + np.log(1 - voiced + 1e-6)))
    spectra = pulse + 0.8 * hiss * tables.noise[np.arange(count) % 4]
    fade = np.ones(SPECTRUM)
    fade[-200:] = np.linspace(1, 0, 200)
    responses = np.fft.irfft(spectra, SPECTRUM, axis=-1) * fade
    responses = np.pad(responses, ((0, 0), (0, _TAIL * PERIOD - SPECTRUM)))
    line = np.zeros((count + _TAIL) * PERIOD)
    for part in range(_TAIL):
        block = responses[:, part * PERIOD : (part + 1) * PERIOD].reshape(-1)
        line[part * PERIOD : (part + count) * PERIOD] += block
    # A pulse of the spectrum's own energy, spread over its period.
    flat: NDArray[np.float32] = (line[: count * PERIOD] * np.sqrt(PERIOD)).astype(np.float32)
    return flat


def _minimum_phase(log_magnitude: Array) -> NDArray[np.complex128]:
    cepstrum = np.fft.irfft(log_magnitude, SPECTRUM, axis=-1)
    cepstrum[:, 1 : SPECTRUM // 2] *= 2
    cepstrum[:, SPECTRUM // 2 + 1 :] = 0
    return np.exp(np.fft.rfft(cepstrum, SPECTRUM, axis=-1))
