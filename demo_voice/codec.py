"""A small Mimi in moshi's layout, to be trained: rates, strides and codebooks as published."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor

from demo_voice.profiles import Profile
from gpu_worker.codec import default_mimi_config
from shared.wav import CODEBOOKS

FAR: Final = 50.0
"""Where a centroid is parked that no latent may ever be nearest to."""
LAYER_SCALE: Final = 0.1


def mimi_config(profile: Profile) -> dict[str, Any]:
    """moshi's configuration, in the form that ``gpu_worker.codec.build_mimi`` takes."""
    published, dim = default_mimi_config(), profile.mimi_dim
    sizes: dict[str, dict[str, Any]] = {
        "seanet": {"n_filters": profile.mimi_filters, "dimension": dim},
        "quantizer": {
            "dimension": profile.codebook_dim,
            "bins": profile.codebook_size,
            "input_dimension": dim,
            "output_dimension": dim,
        },
        "transformer": {
            "d_model": dim,
            "num_heads": 4,
            "num_layers": profile.mimi_layers,
            "dim_feedforward": 4 * dim,
            "layer_scale": LAYER_SCALE,
            "input_dimension": dim,
            "output_dimensions": [dim],
        },
    }
    return published | {part: published[part] | sizes[part] for part in sizes}


def new_mimi(profile: Profile) -> Any:
    """Freshly initialised from torch's global seed."""
    from moshi.models import loaders

    return loaders.get_mimi(None, mimi_config(profile), num_codebooks=CODEBOOKS)


def latents(mimi: Any, wave: Tensor) -> Tensor:
    """[rows, 1, samples] -> [rows, codebook_dim, frames], before any codebook."""
    encoded = mimi.encoder(wave)
    (encoded,) = mimi.encoder_transformer(encoded)
    projected: Tensor = mimi.quantizer.rvq_rest.input_proj(mimi._to_framerate(encoded))
    return projected


def sound(mimi: Any, quantised: Tensor) -> Tensor:
    """[rows, mimi_dim, frames], what the quantiser gives, -> [rows, 1, samples]."""
    (decoded,) = mimi.decoder_transformer(mimi._to_encoder_framerate(quantised))
    wave: Tensor = mimi.decoder(decoded)
    return wave


def codebooks(mimi: Any) -> list[Any]:
    """moshi's 32 codebook modules, the first being the one that the backbone predicts."""
    first, rest = mimi.quantizer.rvq_first.vq.layers, mimi.quantizer.rvq_rest.vq.layers
    return [layer._codebook for layer in (*first, *rest)]


def centroids(mimi: Any) -> Tensor:
    """[32, codes, codebook_dim]."""
    return torch.stack(
        [book.embedding_sum / book.cluster_usage[:, None] for book in codebooks(mimi)]
    )


def set_centroids(book: Any, values: Tensor) -> None:
    """Make ``values`` [codes, codebook_dim] what a codebook holds, as if all were used alike."""
    book.embedding_sum.data.copy_(values)
    book.cluster_usage.data.fill_(1.0)
    book._initialized.data.fill_(1)
    book._cached_initialized = True
    book.register_buffer("_embedding", None, persistent=False)
