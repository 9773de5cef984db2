from __future__ import annotations

import sqlite3

import pytest

from kx.errors import DataMalformed, ModelMissing
from kx.paths import Home
from retrieval.index import Index
from retrieval.model import Embedder
from tests.unit.retrieval.doubles import HashingEmbedder, MemoryStore, make_entry


def reopen(home: Home, embedder: HashingEmbedder, store: MemoryStore) -> Index:
    return Index.open(home, lambda: embedder, lambda folder, model: store)


def test_entries_come_back_as_given(index: Index) -> None:
    entries = [
        make_entry("urn:b", "tile", kind="concept", title="Tile, größer", concepts=("one", "two")),
        make_entry("urn:a", "scan", names=("prefix sum", "größer")),
    ]
    index.sync_curated(entries)
    assert index.entries() == entries
    assert index.sources() == {}


def test_opening_and_reading_need_no_model(home: Home) -> None:
    def no_model() -> Embedder:
        raise ModelMissing("absent")

    with Index.open(home, no_model) as index:
        assert index.entries() == []
        assert not home.root.exists() or not (home.index / "vectors").exists()
        index.sync_curated([make_entry("a", "tile")])
        assert index.has_pending()
        with pytest.raises(ModelMissing):
            index.embed_pending()


def test_nearest_embeds_what_is_pending(index: Index) -> None:
    index.sync_curated([make_entry("a", "tile in shared memory"), make_entry("b", "prefix scan by shuffles")])
    (best, similarity), *_ = index.nearest("prefix scan", 2)
    assert best == "b"
    assert 0.3 < similarity <= 1.0
    assert not index.has_pending()


def test_unchanged_knowledge_is_not_embedded_again(index: Index, embedder: HashingEmbedder) -> None:
    entries = [make_entry("a", "tile"), make_entry("b", "scan")]
    assert index.sync_curated(entries)
    assert index.embed_pending() == 2
    assert not index.sync_curated(entries)
    assert not index.has_pending()
    assert index.embed_pending() == 0
    assert len(embedder.embedded) == 2


def test_only_changed_texts_are_embedded(index: Index, embedder: HashingEmbedder) -> None:
    index.sync_curated([make_entry("a", "tile"), make_entry("b", "scan")])
    index.embed_pending()
    embedder.embedded.clear()
    assert index.sync_curated([make_entry("a", "tile"), make_entry("b", "scan of pairs"), make_entry("c", "tile")])
    assert index.pending_count() == 2
    steps: list[tuple[int, int]] = []
    assert index.embed_pending(lambda done, total: steps.append((done, total))) == 2
    assert sorted(embedder.embedded) == ["b. scan of pairs", "c. tile"]
    assert steps == [(2, 2)]
    assert {key for key, _ in index.nearest("tile", 5)} == {"a", "b", "c"}


def test_a_source_is_replaced_as_one_and_removed(index: Index, store: MemoryStore) -> None:
    index.sync_curated([make_entry("c", "tile")])
    index.replace_source("urn:s", [make_entry("s1", "scan", "urn:s"), make_entry("s2", "x", "urn:s")], "v1")
    index.embed_pending()
    index.replace_source("urn:s", [make_entry("s1", "scan", "urn:s")], "v2")
    index.embed_pending()
    assert [entry.id for entry in index.entries()] == ["c", "s1"]
    assert index.sources() == {"urn:s": "v2"}
    index.remove_source("urn:s")
    index.remove_source("urn:unknown")
    assert index.sources() == {}
    assert index.embed_pending() == 0
    assert set(store.rows) == {"c"}
    assert not index.has_pending()


def test_a_removed_source_can_come_back(index: Index, store: MemoryStore) -> None:
    entries = [make_entry("s1", "scan", "urn:s")]
    index.replace_source("urn:s", entries)
    index.embed_pending()
    index.remove_source("urn:s")
    assert index.replace_source("urn:s", entries)
    index.embed_pending()
    assert set(store.rows) == {"s1"}


def test_equal_entries_of_a_newer_version_are_only_noted(index: Index) -> None:
    entries = [make_entry("s1", "scan", "urn:s")]
    assert index.replace_source("urn:s", entries, "v1")
    index.embed_pending()
    assert not index.replace_source("urn:s", entries, "v2")
    assert index.sources() == {"urn:s": "v2"}
    assert not index.has_pending()


@pytest.mark.parametrize(
    "entries",
    [[make_entry("x", source="urn:other")], [make_entry("x", source="urn:s"), make_entry("x", source="urn:s")]],
    ids=["entry of another source", "id used twice"],
)
def test_wrong_entries_change_nothing(index: Index, entries: list[object]) -> None:
    index.replace_source("urn:s", [make_entry("s1", "scan", "urn:s")], "v1")
    with pytest.raises(ValueError, match=r"does not belong|used twice"):
        index.replace_source("urn:s", entries, "v2")  # type: ignore[arg-type]
    assert [entry.id for entry in index.entries()] == ["s1"]
    assert index.sources() == {"urn:s": "v1"}


def test_death_between_entries_and_vectors_loses_nothing(
    home: Home, index: Index, embedder: HashingEmbedder, store: MemoryStore
) -> None:
    index.sync_curated([make_entry("a", "tile")])
    index.close()
    with reopen(home, embedder, store) as again:
        assert again.has_pending()
        assert again.nearest("tile", 1)[0][0] == "a"


def test_death_while_embedding_keeps_the_texts_done(home: Home, store: MemoryStore) -> None:
    class Dying(HashingEmbedder):
        def embed(self, texts: list[str]):  # type: ignore[no-untyped-def]
            if self.embedded:
                raise KeyboardInterrupt
            return super().embed(texts)

    entries = [make_entry(f"e{i}", f"text {i}") for i in range(200)]
    with reopen(home, Dying(), store) as index:
        index.sync_curated(entries)
        with pytest.raises(KeyboardInterrupt):
            index.embed_pending()
    surviving = HashingEmbedder()
    with reopen(home, surviving, store) as index:
        assert index.embed_pending() == 200 - 128
        assert len(surviving.embedded) == 200 - 128
    assert store.size() == 200


def test_deleted_vector_store_is_built_again_without_the_model(
    home: Home, index: Index, embedder: HashingEmbedder
) -> None:
    index.sync_curated([make_entry("a", "tile"), make_entry("b", "scan")])
    index.embed_pending()
    index.close()
    embedder.embedded.clear()
    fresh = MemoryStore()
    with reopen(home, embedder, fresh) as again:
        assert again.embed_pending() == 0
    assert embedder.embedded == []
    assert set(fresh.rows) == {"a", "b"}


def test_vectors_of_forgotten_texts_are_dropped(home: Home, index: Index) -> None:
    index.sync_curated([make_entry("a", "tile"), make_entry("b", "scan")])
    index.embed_pending()
    index.sync_curated([make_entry("a", "tile")])
    index.embed_pending()
    with sqlite3.connect(home.index / "entries.sqlite") as database:
        (count,) = database.execute("SELECT count(*) FROM vectors").fetchone()
    database.close()
    assert count == 1


def test_chroma_is_the_default_store_and_is_bound_to_its_model(home: Home) -> None:
    with Index.open(home, HashingEmbedder) as index:
        index.sync_curated([make_entry("a", "tile"), make_entry("b", "scan")])
        assert index.nearest("scan", 1)[0][0] == "b"
    with Index.open(home, lambda: HashingEmbedder("other")) as index, pytest.raises(DataMalformed, match="other"):
        index.nearest("scan", 1)


def test_few_entries_are_compared_without_opening_the_store(
    home: Home, index: Index, embedder: HashingEmbedder
) -> None:
    index.sync_curated([make_entry(f"e{i}", f"tile {i}") for i in range(30)])
    index.embed_pending()

    def no_store(folder: object, model: str) -> MemoryStore:
        raise AssertionError("the store was opened")

    with Index.open(home, lambda: embedder, no_store, exact_limit=30) as small:
        exact = small.nearest("tile 7", 5)
    with Index.open(home, lambda: embedder, no_store, exact_limit=29) as large, pytest.raises(AssertionError):
        large.nearest("tile 7", 5)
    assert exact[0][0] == "e7"
    assert [key for key, _ in exact] == [
        key for key, _ in index._open_store().nearest(embedder.embed(["tile 7"])[0], 5)
    ]


def test_another_process_changing_the_entries_is_seen(home: Home, embedder: HashingEmbedder) -> None:
    store = MemoryStore()
    with reopen(home, embedder, store) as one, reopen(home, embedder, store) as other:
        one.sync_curated([make_entry("a", "tile")])
        assert [key for key, _ in one.nearest("scan", 5)] == ["a"]
        other.sync_curated([make_entry("b", "scan")])
        other.embed_pending()
        assert [key for key, _ in one.nearest("scan", 5)] == ["b"]


def test_lost_vectors_are_made_again(home: Home, embedder: HashingEmbedder, store: MemoryStore) -> None:
    with reopen(home, embedder, store) as index:
        index.sync_curated([make_entry("a", "tile"), make_entry("b", "scan")])
        index.embed_pending()
    with sqlite3.connect(home.index / "entries.sqlite") as database:
        database.execute("DELETE FROM vectors")
    database.close()
    with reopen(home, embedder, store) as index:
        assert index.nearest("scan", 1)[0][0] == "b"


def test_damaged_entries_file_is_a_clear_error(home: Home, index: Index) -> None:
    home.index.mkdir(parents=True)
    (home.index / "entries.sqlite").write_bytes(b"garbage" * 500)
    with pytest.raises(DataMalformed, match=r"entries\.sqlite cannot be used") as caught:
        index.entries()
    assert f"delete {home.index}" in caught.value.hint


def test_index_of_a_later_layout_is_refused(home: Home, index: Index) -> None:
    home.index.mkdir(parents=True)
    with sqlite3.connect(home.index / "entries.sqlite") as database:
        database.execute("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(DataMalformed, match="layout 99"):
        index.entries()


def test_index_of_the_first_layout_is_taken_over(home: Home, index: Index, store: MemoryStore) -> None:
    index.sync_curated([make_entry("a", "tile")])
    index.replace_source("urn:s", [make_entry("s1", "scan", "urn:s")], "v1")
    index.embed_pending()
    index.close()
    with sqlite3.connect(home.index / "entries.sqlite") as database:
        database.execute("ALTER TABLE entries DROP COLUMN names")
        database.execute("PRAGMA user_version = 1")
    database.close()
    assert [entry.id for entry in index.entries()] == ["a", "s1"]
    assert index.sources() == {"urn:s": ""}  # so that its entries are made again
    assert index.sync_curated([make_entry("a", "tile", names=("block",))])
    assert index.entries()[0].names == ("block",)


def test_folder_that_cannot_be_made_is_a_clear_error(home: Home, index: Index) -> None:
    home.root.write_text("a file where the data folder should be")
    with pytest.raises(DataMalformed, match="cannot be used"):
        index.entries()
