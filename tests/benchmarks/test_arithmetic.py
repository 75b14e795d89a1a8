"""Rates, ratios and bytes, against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest

from benchmarks import arithmetic
from benchmarks.records import Spread
from gpu_worker.model.config import CsmConfig
from gpu_worker.model.layouts import torchtune_shapes
from tests.benchmarks.records import report


def test_a_frame_reads_the_backbone_once_and_the_depth_decoder_31_times() -> None:
    """The depth decoder and its projection count per step, heads and backbone once, tables not."""
    shapes = {
        "backbone.layers.0.attn.q_proj.weight": (10, 10),
        "codebook0_head.weight": (5, 10),
        "decoder.layers.0.attn.q_proj.weight": (4, 4),
        "projection.weight": (4, 10),
        "audio_head": (31, 4, 5),
        "text_embeddings.weight": (1000, 10),
        "audio_embeddings.weight": (1000, 10),
    }

    assert arithmetic.weight_elements_per_frame(shapes, 32) == 100 + 50 + 31 * (16 + 40) + 620


def test_csm_1b_reads_nine_gigabytes_a_frame() -> None:
    """In bfloat16: 1.95 GB of backbone, 6.9 GB of depth decoder, and the heads."""
    config = CsmConfig.csm_1b()
    elements = arithmetic.weight_elements_per_frame(torchtune_shapes(config), 32)

    assert 2 * elements == pytest.approx(9.1e9, rel=0.02)


def test_csm_1b_has_its_parameters() -> None:
    """The seeded model is as large as the published one."""
    shapes = torchtune_shapes(CsmConfig.csm_1b())

    assert arithmetic.elements(shapes) == pytest.approx(1.55e9, rel=0.01)


def test_rates_of_a_step() -> None:
    """Eight lanes in 0.64 s are 12.5 frames a second; each lane is eight times slower than real."""
    assert arithmetic.frames_per_s(8, 0.64) == 12.5
    assert arithmetic.rtf(0.64) == pytest.approx(8.0)
    assert arithmetic.rtf(0.08) == pytest.approx(1.0)


def test_the_floor_is_bytes_over_bandwidth() -> None:
    """Eight gigabytes at twenty a second take 0.4 s."""
    assert report().floor_s == pytest.approx(0.4)


def test_ratios_are_of_frames_per_second_to_batch_one() -> None:
    """Neither our lanes nor their batch count: only frames that came out."""
    one, eight = report().lanes

    assert report().over_oracle(one) == pytest.approx(1.25)
    assert report().over_oracle(eight) == pytest.approx(6.25)
    assert report(oracle=()).over_oracle(one) is None


def test_loading_and_first_audio_in_ratios() -> None:
    """Peak over kept, reads per byte, and how much later a prompted voice begins."""
    measured = report()

    assert measured.loading.peak_over_kept == pytest.approx(1.2)
    assert measured.loading.reads_per_byte == pytest.approx(1.0125)
    assert measured.first_audio.prompted_over_plain == pytest.approx(1.1)
    assert measured.prefill[0].positions_per_s == pytest.approx(170)


def test_a_frame_later_than_its_turn_is_an_underrun() -> None:
    """Playback begins with the first frame; each later one has its turn."""
    assert arithmetic.underruns([5.0, 5.07, 5.15, 5.2]) == 0
    assert arithmetic.underruns([5.0, 5.09, 5.17, 5.2]) == 2
    assert arithmetic.underruns([]) == 0


def test_a_spread_is_median_and_quartiles() -> None:
    """One outlier moves neither the median nor the quartiles far."""
    spread = Spread.of([1.0, 2.0, 3.0, 4.0, 100.0])

    assert (spread.median, spread.low, spread.high, spread.count) == (3.0, 2.0, 4.0, 5)
    assert Spread.of([7.0]) == Spread(7.0, 7.0, 7.0, 1)
    assert not math.isnan(spread.high)
    with pytest.raises(ValueError, match="nothing"):
        Spread.of([])
