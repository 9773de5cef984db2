"""Chroma as the vector store, embedded and persistent; the only module that imports chromadb."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
import numpy.typing as npt

from kx.errors import DataMalformed
from retrieval.model import Entry

if TYPE_CHECKING:
    from chromadb.api.client import Client
    from chromadb.api.collection_configuration import CreateHNSWConfiguration
    from chromadb.api.models.Collection import Collection

_COLLECTION = "entries"
# Chroma's defaults (100, 100, 16) miss up to one in eight of the 60 nearest once entries have been
# replaced a few times; with these, one in a thousand at most (tests/unit/retrieval/test_chroma.py).
# One thread, so that the same entries give the same graph and the same answers.
_HNSW: CreateHNSWConfiguration = {
    "space": "cosine",
    "ef_construction": 400,
    "ef_search": 800,
    "max_neighbors": 48,
    "num_threads": 1,
}


class ChromaStore:
    """`retrieval.model.VectorStore` in a folder.

    Vectors are always ours: the collection has no embedding function, since Chroma's default one
    would download a model. Telemetry is off.

    Args:
        folder: the store's folder; created when absent.
        model: name of the embedding model; a store remembers the one that it was built with.

    Raises:
        DataMalformed: the folder is not a readable store, or was built with another model.
    """

    def __init__(self, folder: Path, model: str) -> None:
        import chromadb
        from chromadb.config import Settings

        self._folder = folder
        with self._foreign_errors():
            folder.mkdir(parents=True, exist_ok=True)
            self._client = cast(
                "Client", chromadb.PersistentClient(path=str(folder), settings=Settings(anonymized_telemetry=False))
            )
            self._batch = self._client.get_max_batch_size()
            self._collection: Collection = self._client.get_or_create_collection(
                _COLLECTION,
                embedding_function=None,
                metadata={"model": model},
                configuration={"hnsw": _HNSW},
            )
        built_with = (self._collection.metadata or {}).get("model")
        if built_with != model:
            self.close()
            raise DataMalformed(
                f"the index in {folder} was built with the embedding model {built_with}, not {model}",
                f"delete {folder} (it is built again from the entries), or go back to {built_with}",
            )

    def replace(self, source: str, entries: list[Entry], vectors: npt.NDArray[np.float32]) -> None:
        """Make ``entries`` the only ones owned by ``source``.

        Args:
            source: owner.
            entries: n entries.
            vectors: shape [n, d], float32, of norm 1.
        """
        if len(entries) != len(vectors):
            raise ValueError(f"{len(entries)} entries but {len(vectors)} vectors")
        with self._foreign_errors():
            self._collection.delete(where={"source": source})
            for start in range(0, len(entries), self._batch):
                part = entries[start : start + self._batch]
                self._collection.add(
                    ids=[entry.id for entry in part],
                    embeddings=vectors[start : start + self._batch],
                    metadatas=[{"source": source, "kind": entry.kind} for entry in part],
                )

    def nearest(self, vector: npt.NDArray[np.float32], count: int) -> list[tuple[str, float]]:
        """Up to ``count`` (entry id, cosine similarity) pairs, best first; ties by id.

        Args:
            vector: shape [d], float32, of norm 1.
            count: how many at most.
        """
        with self._foreign_errors():
            available = min(count, self._collection.count())
            if available < 1:
                return []
            found = self._collection.query(
                query_embeddings=vector.reshape(1, -1), n_results=available, include=["distances"]
            )
        distances = found["distances"]
        if distances is None:
            raise DataMalformed(f"the index in {self._folder} returned no distances", self._rebuild_hint())
        pairs = zip(found["ids"][0], (1.0 - float(distance) for distance in distances[0]), strict=True)
        return sorted(pairs, key=lambda pair: (-pair[1], pair[0]))

    def size(self) -> int:
        """Number of entries."""
        with self._foreign_errors():
            return self._collection.count()

    def close(self) -> None:
        """Release the files."""
        self._client.close()

    def _rebuild_hint(self) -> str:
        return f"delete {self._folder}: it is built again from the entries at the next query"

    @contextmanager
    def _foreign_errors(self) -> Iterator[None]:
        from chromadb.errors import ChromaError

        try:
            yield
        except (ChromaError, OSError) as exc:
            raise DataMalformed(
                f"the vector index in {self._folder} cannot be used: {exc}", self._rebuild_hint()
            ) from exc
