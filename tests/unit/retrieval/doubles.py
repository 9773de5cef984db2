"""Stand-ins for the embedding model and the vector store: exact, fast, deterministic."""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

from retrieval.model import Entry
from retrieval.words import code_terms


class HashingEmbedder:
    """Bag of hashed terms, normalized: texts that share words are near each other."""

    def __init__(self, name: str = "hashing", width: int = 256) -> None:
        self.name = name
        self.width = width
        self.embedded: list[str] = []

    def embed(self, texts: list[str]) -> npt.NDArray[np.float32]:
        self.embedded.extend(texts)
        vectors = np.zeros((len(texts), self.width), dtype=np.float32)
        for row, text in enumerate(texts):
            for term in code_terms(text):
                digest = hashlib.sha256(term.encode()).digest()
                vectors[row, int.from_bytes(digest[:4], "little") % self.width] += 1.0
            vectors[row, 0] += 1e-3  # a text without terms has a direction too
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


class MemoryStore:
    """Exact search over vectors in memory; outlives the index that opened it."""

    def __init__(self) -> None:
        self.rows: dict[str, tuple[str, npt.NDArray[np.float32]]] = {}
        self.replaced: list[str] = []

    def replace(self, source: str, entries: list[Entry], vectors: npt.NDArray[np.float32]) -> None:
        self.replaced.append(source)
        self.rows = {key: row for key, row in self.rows.items() if row[0] != source}
        self.rows |= {entry.id: (source, vector) for entry, vector in zip(entries, vectors, strict=True)}

    def nearest(self, vector: npt.NDArray[np.float32], count: int) -> list[tuple[str, float]]:
        found = [(key, float(row @ vector)) for key, (_, row) in self.rows.items()]
        return sorted(found, key=lambda pair: (-pair[1], pair[0]))[:count]

    def size(self) -> int:
        return len(self.rows)

    def close(self) -> None:
        pass


def make_entry(name: str, text: str = "", source: str = "curated", **others: object) -> Entry:
    fields = {"id": name, "kind": "pattern", "title": name, "text": text, "source": source, **others}
    return Entry(**fields)  # type: ignore[arg-type]
