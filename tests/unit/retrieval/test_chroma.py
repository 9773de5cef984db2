from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from kx.errors import DataMalformed
from retrieval.chroma import ChromaStore
from tests.unit.retrieval.doubles import make_entry


def unit_vectors(count: int, seed: int, width: int = 64) -> npt.NDArray[np.float32]:
    """Vectors in clusters, as texts make them."""
    random = np.random.default_rng(seed)
    centres = random.normal(size=(12, width))
    rows = centres[random.integers(0, 12, count)] + 0.7 * random.normal(size=(count, width))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def test_replace_owns_by_source_and_survives_reopening(tmp_path: Path) -> None:
    store = ChromaStore(tmp_path, "model")
    vectors = unit_vectors(4, 0)
    store.replace("a", [make_entry("a1", source="a"), make_entry("a2", source="a")], vectors[:2])
    store.replace("b", [make_entry("b1", source="b")], vectors[2:3])
    store.replace("a", [make_entry("a3", source="a")], vectors[3:])
    store.close()
    reopened = ChromaStore(tmp_path, "model")
    assert reopened.size() == 2
    (best, similarity), *_ = reopened.nearest(vectors[3], 5)
    assert best == "a3"
    assert similarity == pytest.approx(1.0, abs=1e-5)
    reopened.replace("a", [], np.zeros((0, 1), dtype=np.float32))
    assert reopened.size() == 1
    reopened.close()


def test_empty_store_and_no_count_find_nothing(tmp_path: Path) -> None:
    store = ChromaStore(tmp_path, "model")
    assert store.nearest(unit_vectors(1, 0)[0], 5) == []
    store.replace("a", [make_entry("a1", source="a")], unit_vectors(1, 0))
    assert store.nearest(unit_vectors(1, 0)[0], 0) == []
    store.close()


def test_the_nearest_are_found_after_replacements(tmp_path: Path) -> None:
    store = ChromaStore(tmp_path, "model")
    for round_number in range(3):
        vectors = unit_vectors(700, round_number)
        store.replace("curated", [make_entry(f"e{i}") for i in range(700)], vectors)
    missed = 0
    for query in unit_vectors(20, 99):
        expected = {f"e{i}" for i in np.argsort(-(vectors @ query))[:60]}
        missed += len(expected - {key for key, _ in store.nearest(query, 60)})
    store.close()
    # Chroma draws the levels of its graph at random: 0 to 6 were seen, and about 150 with its default settings.
    assert missed <= 12, f"{missed} of 1200"


def test_more_entries_than_one_batch(tmp_path: Path) -> None:
    store = ChromaStore(tmp_path, "model")
    store._batch = 7
    vectors = unit_vectors(20, 1)
    store.replace("a", [make_entry(f"e{i}", source="a") for i in range(20)], vectors)
    assert store.size() == 20
    assert store.nearest(vectors[19], 1)[0][0] == "e19"
    store.close()


def test_index_of_another_model_is_refused_with_a_way_out(tmp_path: Path) -> None:
    ChromaStore(tmp_path, "old").close()
    with pytest.raises(DataMalformed, match="embedding model old, not new") as caught:
        ChromaStore(tmp_path, "new")
    assert f"delete {tmp_path}" in caught.value.hint


def test_entries_and_vectors_must_agree(tmp_path: Path) -> None:
    store = ChromaStore(tmp_path, "model")
    with pytest.raises(ValueError, match="1 entries but 2 vectors"):
        store.replace("a", [make_entry("a1", source="a")], unit_vectors(2, 0))
    store.close()


def test_vector_of_another_width_is_a_clear_error(tmp_path: Path) -> None:
    store = ChromaStore(tmp_path, "model")
    store.replace("a", [make_entry("a1", source="a")], unit_vectors(1, 0))
    with pytest.raises(DataMalformed, match="cannot be used") as caught:
        store.nearest(unit_vectors(1, 0, width=8)[0], 1)
    assert caught.value.__cause__ is not None
    store.close()


@pytest.mark.parametrize("damage", ["garbage", "truncated", "file in place of the folder"])
def test_damaged_store_is_a_clear_error(tmp_path: Path, damage: str) -> None:
    folder = tmp_path / "vectors"
    if damage == "file in place of the folder":
        folder.write_text("not a folder")
    else:
        # A process of its own writes, since chroma keeps a store open for the life of a process.
        program = "import sys; from pathlib import Path; from retrieval.chroma import ChromaStore; "
        program += "ChromaStore(Path(sys.argv[1]), 'model').close()"
        subprocess.run([sys.executable, "-c", program, str(folder)], check=True)
        if damage == "garbage":
            (folder / "chroma.sqlite3").write_bytes(b"garbage" * 2000)
        else:
            os.truncate(folder / "chroma.sqlite3", 9000)
    with pytest.raises(DataMalformed, match="cannot be used") as caught:
        ChromaStore(folder, "model")
    assert str(folder) in caught.value.hint
    assert caught.value.__cause__ is not None
