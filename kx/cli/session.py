"""Opening what commands share: the retriever over an up-to-date index."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kx.cli.output import note
from kx.paths import Home


@contextmanager
def opened_retriever(home: Home, graph: Any) -> Iterator[Any]:
    """A retriever whose index holds the curated knowledge; made on first use, which takes a few seconds."""
    from kx.settings import Settings
    from retrieval.embedding import SentenceEmbedder
    from retrieval.entries import curated_entries
    from retrieval.index import Index
    from retrieval.ranking import Retriever

    settings = Settings.load(home)
    with Index.open(home, lambda: SentenceEmbedder(settings.embedding_folder)) as index:
        if index.sync_curated(curated_entries(graph)):
            note("indexing the curated knowledge (once)")
        index.embed_pending(None)
        yield Retriever(graph, index)
