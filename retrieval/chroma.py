"""Chroma as the vector store, in a folder or on a server; the only module that imports chromadb."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
import numpy.typing as npt

from kx.errors import DataMalformed, StoreUnreachable
from kx.paths import write_atomically
from kx.settings import CHROMA, credentials
from retrieval.model import Entry

if TYPE_CHECKING:
    from chromadb.api.client import Client
    from chromadb.api.collection_configuration import CreateHNSWConfiguration
    from chromadb.api.models.Collection import Collection

_COLLECTION = "entries"
_PROBE_S = 20.0
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
        self._place = f"the vector index in {folder}"
        with self._foreign_errors():
            folder.mkdir(parents=True, exist_ok=True)
            self._client = cast(
                "Client", chromadb.PersistentClient(path=str(folder), settings=Settings(anonymized_telemetry=False))
            )
        self._collection = self._open_collection(_COLLECTION, model)

    def _open_collection(self, name: str, model: str) -> Collection:
        with self._foreign_errors():
            self._batch = self._client.get_max_batch_size()
            collection = self._client.get_or_create_collection(
                name,
                embedding_function=None,
                metadata={"model": model},
                configuration={"hnsw": _HNSW},
            )
        built_with = (collection.metadata or {}).get("model")
        if built_with != model:
            self.close()
            raise DataMalformed(
                f"{self._place} was built with the embedding model {built_with}, not {model}",
                f"delete {self._folder} (it is built again from the entries), or go back to {built_with}",
            )
        return collection

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
            raise DataMalformed(f"{self._place} returned no distances", self._rebuild_hint())
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
            raise DataMalformed(f"{self._place} cannot be used: {exc}", self._rebuild_hint()) from exc


class RemoteChromaStore(ChromaStore):
    """`retrieval.model.VectorStore` on a Chroma server, in a collection of this data folder's own.

    The collection's name stands in ``<folder>/collection``, so that data folders with different sources can
    share a server. ``KX_VECTOR_TOKEN``, or ``KX_VECTOR_USER`` and ``KX_VECTOR_PASSWORD``, are sent along.

    Args:
        url: of the server.
        folder: remembers the collection; created when absent.
        model: as for `ChromaStore`.

    Raises:
        StoreUnreachable: the server does not answer, or refuses the credentials.
        DataMalformed: the URL is no Chroma server's, or the collection was built with another model.
    """

    def __init__(self, url: str, folder: Path, model: str) -> None:
        import chromadb
        from chromadb.config import Settings

        headers = credentials("KX_VECTOR")
        probe_server(url, headers)
        self._folder = folder
        self._url = url
        name = _own_collection(folder)
        self._place = f"the vector index {name} on {url}"
        with self._foreign_errors():
            self._client = cast(
                "Client",
                chromadb.HttpClient(host=url, headers=headers, settings=Settings(anonymized_telemetry=False)),
            )
        self._collection = self._open_collection(name, model)

    @contextmanager
    def _foreign_errors(self) -> Iterator[None]:
        import httpx
        from chromadb.errors import ChromaError

        try:
            yield
        except httpx.HTTPError as exc:
            raise StoreUnreachable(
                f"the Chroma server {self._url} does not answer: {exc or type(exc).__name__}",
                "start it, or set vector_store; the vectors are kept and sent again",
            ) from exc
        except (ChromaError, ValueError) as exc:
            raise DataMalformed(f"{self._place} cannot be used: {exc}", self._rebuild_hint()) from exc


def store_factory(vector_store: str) -> Callable[[Path, str], ChromaStore]:
    """What opens the vector store that a setting names.

    Args:
        vector_store: ``chroma``, or the URL of a Chroma server.
    """
    if vector_store == CHROMA:
        return ChromaStore
    return lambda folder, model: RemoteChromaStore(vector_store, folder, model)


def probe_server(url: str, headers: dict[str, str]) -> None:
    """Ask a server who we are; Chroma's own client would wait for ever and not tell why it fails.

    Raises:
        StoreUnreachable: no answer, or the credentials are refused.
        DataMalformed: whatever answers is no Chroma server.
    """
    request = urllib.request.Request(f"{url.rstrip('/')}/api/v2/auth/identity", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=_PROBE_S) as answer:
            if "tenant" in json.loads(answer.read()):
                return
            said = "its answer names no tenant"
    except urllib.error.HTTPError as exc:
        with exc:
            said = f"HTTP {exc.code}"
        if exc.code in (401, 403):
            raise StoreUnreachable(
                f"the Chroma server {url} refuses the credentials ({said})",
                "set KX_VECTOR_TOKEN, or KX_VECTOR_USER and KX_VECTOR_PASSWORD",
            ) from exc
    except OSError as exc:
        reason = getattr(exc, "reason", None) or exc
        raise StoreUnreachable(
            f"the Chroma server {url} does not answer: {reason}", "start it (chroma run), or set vector_store"
        ) from exc
    except (ValueError, TypeError) as exc:
        said = f"no JSON: {exc}"
    raise DataMalformed(f"{url} is no Chroma server ({said})", "set vector_store to the server's URL, or to chroma")


def _own_collection(folder: Path) -> str:
    remembered = folder / "collection"
    try:
        return remembered.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        name = f"kx-{uuid.uuid4().hex[:16]}"
        write_atomically(remembered, f"{name}\n")
        return name
