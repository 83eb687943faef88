"""Make the file of word vectors that comes with fewlink from the sentence encoder all-MiniLM-L6-v2.

python benchmarks/word_vectors.py FOLDER

FOLDER holds `model.safetensors` and `vocab.txt` of sentence-transformers/all-MiniLM-L6-v2. Every piece of its
vocabulary that is a word or part of one goes through the encoder once, alone; its vector is the normalised mean of the
last states, less the mean of all pieces, on the first 96 principal directions, as 8-bit numbers. The licence of the
vectors is src/fewlink/builtin/LICENSE-words.txt.
"""

from __future__ import annotations

import io
import sys
import zipfile
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn.functional import gelu, layer_norm, normalize, scaled_dot_product_attention

from fewlink.core.files import write_bytes
from fewlink.models.trail.names import WORDS_FILE
from ship_weights import FOLDER, enter_checksum

WIDTH = 384
LAYERS = 6
HEADS = 12
# [CLS] and [SEP]
BEGIN = 101
END = 102
FIRST = 999  # pieces before it are [PAD], [unused0] and the like
KEPT = 96  # principal directions
BATCH = 512


class Encoder:
    """BERT's equations with the weights of all-MiniLM-L6-v2."""

    def __init__(self, weights: dict[str, Tensor]) -> None:
        self.weights = {name.removeprefix("bert."): weight.float() for name, weight in weights.items()}

    def __call__(self, ids: Tensor) -> Tensor:
        """The mean (n, 384) of the last states of texts (n, t) of pieces."""
        of = self.weights
        x = of["embeddings.word_embeddings.weight"][ids]
        x = x + of["embeddings.position_embeddings.weight"][: ids.shape[1]]
        x = self.norm(x + of["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
        for layer in (f"encoder.layer.{number}" for number in range(LAYERS)):
            x = self.norm(x + self.attention(x, layer), f"{layer}.attention.output.LayerNorm")
            inner = gelu(self.linear(x, f"{layer}.intermediate.dense"))
            x = self.norm(x + self.linear(inner, f"{layer}.output.dense"), f"{layer}.output.LayerNorm")
        return x.mean(1)

    def attention(self, x: Tensor, layer: str) -> Tensor:
        split = (*x.shape[:2], HEADS, WIDTH // HEADS)
        query, key, value = (
            self.linear(x, f"{layer}.attention.self.{part}").view(split).transpose(1, 2)
            for part in ("query", "key", "value")
        )
        joined = scaled_dot_product_attention(query, key, value).transpose(1, 2).reshape(x.shape)
        return self.linear(joined, f"{layer}.attention.output.dense")

    def linear(self, x: Tensor, name: str) -> Tensor:
        return x @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]

    def norm(self, x: Tensor, name: str) -> Tensor:
        return layer_norm(x, (WIDTH,), self.weights[f"{name}.weight"], self.weights[f"{name}.bias"], 1e-12)


@torch.no_grad()
def vectors(encoder: Encoder, pieces: int) -> np.ndarray:
    """Vectors (pieces - FIRST, 96) int8; the largest number of each is 127."""
    ids = torch.arange(pieces)
    texts = torch.stack([torch.full_like(ids, BEGIN), ids, torch.full_like(ids, END)], 1)
    found = normalize(torch.cat([encoder(batch) for batch in texts.split(BATCH)]), dim=1)
    found = found[FIRST:] - found[FIRST:].mean(0)
    directions = torch.linalg.svd(found[::4], full_matrices=False).Vh[:KEPT]
    kept = found @ directions.T
    scaled = 127 * kept / kept.abs().amax(1, keepdim=True).clamp(min=1e-6)
    return np.asarray(scaled.round().to(torch.int8))


def write(path: Path, words: list[str], found: np.ndarray) -> None:
    """Write an archive whose bytes depend on the vectors alone."""
    arrays = {"words": np.frombuffer("\n".join(words).encode(), np.uint8), "vectors": found}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, array in arrays.items():
            content = io.BytesIO()
            np.lib.format.write_array(content, array, allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), content.getvalue(), zipfile.ZIP_DEFLATED, 9)
    write_bytes(path, buffer.getvalue())


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    folder = Path(sys.argv[1])
    words = (folder / "vocab.txt").read_text("utf-8").splitlines()
    place = FOLDER / WORDS_FILE
    write(place, words[FIRST:], vectors(Encoder(load_file(folder / "model.safetensors")), len(words)))
    enter_checksum(place)
    print(f"{place}: {place.stat().st_size / 1e6:.1f} MB")
