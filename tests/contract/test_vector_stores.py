"""What a vector store does alike in a folder and on a server."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from kx.errors import DataMalformed, StoreUnreachable
from retrieval.chroma import ChromaStore, store_factory
from tests.servers import chroma_server, free_port, guarded, send, serving
from tests.unit.retrieval.doubles import make_entry

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")
Open = Callable[[str], ChromaStore]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with chroma_server(tmp_path_factory.mktemp("chroma")) as address:
        yield address


@pytest.fixture(autouse=True)
def swept() -> Iterator[None]:
    """Chroma's HTTP client leaves its connections to the garbage collector: they end here, not in another test."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(params=["chroma", "server"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    setting = request.param if request.param == "chroma" else request.getfixturevalue("server")
    return lambda model: store_factory(setting)(tmp_path / "vectors", model)


def unit_vectors(count: int) -> npt.NDArray[np.float32]:
    rows = np.random.default_rng(7).normal(size=(count, 16))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def test_a_source_owns_its_entries(open_store: Open) -> None:
    store = open_store("model")
    vectors = unit_vectors(5)
    assert (store.size(), store.nearest(vectors[0], 3)) == (0, [])
    store.replace("a", [make_entry("a1", source="a"), make_entry("a2", source="a")], vectors[:2])
    store.replace("b", [make_entry("b1", source="b")], vectors[2:3])
    store.replace("a", [make_entry("a3", source="a"), make_entry("a4", source="a")], vectors[3:])
    store.close()
    again = open_store("model")
    assert again.size() == 3
    found = again.nearest(vectors[3], 9)
    expected = sorted(
        [("b1", vectors[2]), ("a3", vectors[3]), ("a4", vectors[4])], key=lambda row: -(row[1] @ vectors[3])
    )
    assert [key for key, _ in found] == [key for key, _ in expected]
    assert [s for _, s in found] == pytest.approx([float(v @ vectors[3]) for _, v in expected], abs=1e-5)
    again.replace("a", [], np.zeros((0, 1), dtype=np.float32))
    assert again.size() == 1
    again.close()


def test_an_index_of_another_model_is_refused_with_a_way_out(open_store: Open, tmp_path: Path) -> None:
    open_store("old").close()
    with pytest.raises(DataMalformed, match="embedding model old, not new") as caught:
        open_store("new")
    assert f"delete {tmp_path / 'vectors'}" in caught.value.hint


def test_vectors_of_another_width_are_refused(open_store: Open) -> None:
    store = open_store("model")
    store.replace("a", [make_entry("a1", source="a")], unit_vectors(1))
    with pytest.raises(DataMalformed, match="cannot be used"):
        store.nearest(unit_vectors(1)[0][:3], 1)
    store.close()


def test_two_data_folders_on_one_server_do_not_meet(server: str, tmp_path: Path) -> None:
    one, other = (store_factory(server)(tmp_path / name, "model") for name in ("one", "other"))
    one.replace("a", [make_entry("a1", source="a")], unit_vectors(1))
    assert (one.size(), other.size()) == (1, 0)
    one.close()
    other.close()


def test_credentials_are_sent(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(guarded(server, "Bearer sesame")) as address:
        opened = store_factory(address)
        with pytest.raises(StoreUnreachable, match="refuses the credentials") as caught:
            opened(tmp_path, "model")
        assert "KX_VECTOR_TOKEN" in caught.value.hint
        monkeypatch.setenv("KX_VECTOR_TOKEN", "sesame")
        store = opened(tmp_path, "model")
        assert store.size() == 0
        store.close()


def test_a_server_that_is_down_or_goes_away_is_told(tmp_path: Path, server: str) -> None:
    with pytest.raises(StoreUnreachable, match="does not answer"):
        store_factory(f"http://127.0.0.1:{free_port()}")(tmp_path, "model")
    with serving(guarded(server, "Basic a3g6aw==")) as address, pytest.MonkeyPatch.context() as patched:
        patched.setenv("KX_VECTOR_USER", "kx")
        patched.setenv("KX_VECTOR_PASSWORD", "k")
        store = store_factory(address)(tmp_path, "model")
    with pytest.raises(StoreUnreachable, match="does not answer"):
        store.replace("a", [make_entry("a1", source="a")], unit_vectors(1))
    store.close()


@pytest.mark.parametrize(("code", "body"), [(200, b"<html>"), (200, b"[]"), (404, b"nothing here")])
def test_what_is_no_chroma_server_is_told(tmp_path: Path, code: int, body: bytes) -> None:
    answer = serving(lambda handler, _: send(handler, code, body))
    with answer as address, pytest.raises(DataMalformed, match="is no Chroma server") as caught:
        store_factory(address)(tmp_path, "model")
    assert "vector_store" in caught.value.hint
