"""Vectors of the curated knowledge that come with the package, so that the first question need not wait for them.

They are derived: each stands under the hash of its text and under the model's name, so one that no text asks for
any more is never used, and a text that has none is embedded like any other. Half precision moves a cosine by less
than 1e-3. ``python -m retrieval.bundle`` writes the file anew from the knowledge as it is.
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

FILE = Path(__file__).parent / "bundle" / "curated.npz"
_DIGEST_BYTES = 32


@cache
def bundled_vectors(model: str) -> dict[str, npt.NDArray[np.float32]]:
    """Unit vectors by the hexadecimal SHA-256 of their text; none for another model or without the file.

    Args:
        model: the embedder's name.
    """
    if not FILE.exists():
        return {}
    with np.load(FILE, allow_pickle=False) as data:
        if str(data["model"]) != model:
            return {}
        vectors = data["vectors"].astype(np.float32)
        digests = [bytes(row).hex() for row in data["digests"]]
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return dict(zip(digests, vectors, strict=True))


def write_bundle(path: Path = FILE) -> int:
    """Embed the curated entries and write them; returns how many texts there are."""
    import hashlib
    from tempfile import TemporaryDirectory

    from kgraph.graph import KnowledgeGraph
    from kx.paths import Home
    from retrieval.embedding import SentenceEmbedder
    from retrieval.entries import curated_entries
    from retrieval.index import embedded_text

    with TemporaryDirectory() as folder:
        texts = sorted({embedded_text(entry) for entry in curated_entries(KnowledgeGraph.open(Home(Path(folder))))})
    embedder = SentenceEmbedder()
    vectors = np.concatenate([embedder.embed(texts[start : start + 128]) for start in range(0, len(texts), 128)])
    digests = np.array([list(hashlib.sha256(text.encode()).digest()) for text in texts], dtype=np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, model=np.array(embedder.name), digests=digests, vectors=vectors.astype(np.float16))
    return len(texts)


if __name__ == "__main__":
    sys.stdout.write(f"{write_bundle()} texts in {FILE.name}\n")
