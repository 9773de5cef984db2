"""Opening the graph's index for a command, with word on stderr about what takes time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kgraph.graph import KnowledgeGraph
from kx.cli.output import note, progress
from kx.paths import Home
from kx.settings import Settings
from retrieval.chroma import store_factory
from retrieval.entries import synchronize
from retrieval.index import Index
from retrieval.model import Embedder


@contextmanager
def open_index(home: Home, graph: KnowledgeGraph) -> Iterator[Index]:
    """The index of ``home``, in line with ``graph`` and fully embedded.

    Raises:
        ModelMissing: the embedding model is absent or not the expected one.
        DataMalformed: the index or the settings cannot be used.
        StoreUnreachable: a store on a server does not answer.
    """
    settings = Settings.load(home)

    def make_embedder() -> Embedder:
        from retrieval.embedding import SentenceEmbedder

        return SentenceEmbedder(settings.embedding_folder)

    with Index.open(home, make_embedder, store_factory(settings.vector_store)) as index:
        synchronize(graph, index)
        if index.has_pending():
            count = index.pending_count()
            if count:
                note(f"embedding {count} texts that are new or changed")
            with progress("embedding") as advance:
                index.embed_pending(advance)
        yield index
