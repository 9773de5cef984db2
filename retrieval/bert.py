"""A small BERT sentence encoder on numpy: what one question needs, without seconds of importing torch.

It takes one architecture, that of all-MiniLM-L6-v2: BERT with absolute positions and the exact GELU, mean pooling,
unit length. A folder that holds anything else is refused, and sentence-transformers is there for it. Why there
are two: docs/decisions/2026-12-01-question-encoder.md.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from threadpoolctl import ThreadpoolController

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Array = npt.NDArray[np.float32]

_CONFIG = {
    "model_type": "bert",
    "hidden_act": "gelu",
    "position_embedding_type": "absolute",
}
_MODULES = ("Transformer", "Pooling", "Normalize")
_MEAN_POOLING = "pooling_mode_mean_tokens"
_TOKENS_AT_ONCE = 2048
_THREADS = min(os.cpu_count() or 1, 8)
_MASKED = np.float32(-1e9)
# erf(x) = 1 - (a1 t + ... + a5 t^5) exp(-x^2), t = 1 / (1 + p x), for x >= 0, within 1.5e-7.
# Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 1964, formula 7.1.26.
_ERF_P = np.float32(0.3275911)
_ERF_A = tuple(map(np.float32, (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)))
_ROWS_AT_ONCE = 64
"""Rows of the widest layer for which the GELU's intermediate values stay in the CPU's cache."""


class NotThisArchitecture(ValueError):
    """The folder holds a model that this encoder does not compute; the text says what differs."""


@dataclass(frozen=True)
class _Linear:
    """``x @ weight + bias``: weight of shape [in, out], bias of shape [out]."""

    weight: Array
    bias: Array

    def __call__(self, x: Array) -> Array:
        product: Array = x @ self.weight
        product += self.bias
        return product


@dataclass(frozen=True)
class _Layer:
    # Queries, keys and values in one product: shape [hidden, 3 * hidden].
    attention_in: _Linear
    attention_out: _Linear
    attention_norm: tuple[Array, Array]
    widen: _Linear
    narrow: _Linear
    output_norm: tuple[Array, Array]


class BertEncoder:
    """Unit vectors of texts, equal to those of sentence-transformers within rounding (1e-5).

    Shapes: B texts, T tokens of the longest one, H hidden size, A attention heads.

    Args:
        folder: a sentence-transformers folder with ``model.safetensors`` and ``tokenizer.json``.

    Raises:
        NotThisArchitecture: it holds another kind of model, or a file of it does not read.
    """

    def __init__(self, folder: Path) -> None:
        config = _read_config(folder)
        self._heads = int(config["num_attention_heads"])
        self._epsilon = float(config["layer_norm_eps"])
        self.width: int = int(config["hidden_size"])
        self._tokenizer = _load_tokenizer(folder, config)
        self._load_weights(folder, int(config["num_hidden_layers"]))
        self._blas = ThreadpoolController().select(user_api="blas")

    def embed(self, texts: list[str]) -> Array:
        """Vectors of shape [len(texts), H], float32, of Euclidean norm 1."""
        vectors = np.zeros((len(texts), self.width), dtype=np.float32)
        tokens = [encoding.ids for encoding in self._tokenizer.encode_batch(texts)]
        batches = list(_batches([len(ids) for ids in tokens]))

        def fill(batch: list[int]) -> None:
            vectors[batch] = self._forward([tokens[position] for position in batch])

        # One thread per batch, not per product: on products this small the threads of a BLAS spend their time
        # waiting for each other, ten times over when the machine is busy.
        with self._blas.limit(limits=1):
            if len(batches) == 1:
                fill(batches[0])
            else:
                with ThreadPoolExecutor(_THREADS) as pool:
                    for done in [pool.submit(fill, batch) for batch in batches]:
                        done.result()
        return vectors

    def _load_weights(self, folder: Path, layer_count: int) -> None:
        from safetensors import SafetensorError, safe_open

        try:
            # The file is mapped into memory: of the vocabulary only the words of a text are read.
            tensors: Any = safe_open(folder / "model.safetensors", "np")

            def read(name: str) -> Array:
                tensor = tensors.get_tensor(name)
                if tensor.dtype != np.float32:
                    raise NotThisArchitecture(f"{folder}: {name} is {tensor.dtype}, not float32")
                return np.asarray(tensor)

            self._words = tensors.get_slice("embeddings.word_embeddings.weight")
            if self._words.get_dtype() != "F32":
                raise NotThisArchitecture(f"{folder}: the word embeddings are {self._words.get_dtype()}, not float32")
            kind: Array = read("embeddings.token_type_embeddings.weight")[0]
            self._positions: Array = read("embeddings.position_embeddings.weight") + kind
            self._input_norm = _read_norm(read, "embeddings.LayerNorm")
            self._layers = [_read_layer(read, f"encoder.layer.{number}") for number in range(layer_count)]
        except (SafetensorError, OSError) as exc:
            raise NotThisArchitecture(f"{folder}: {exc}") from exc

    def _forward(self, tokens: list[list[int]]) -> Array:
        lengths = np.array([len(ids) for ids in tokens])
        batch, longest = len(tokens), int(lengths.max())
        real = np.arange(longest) < lengths[:, None]
        hidden = self._embed_tokens(tokens, longest)
        bias = np.where(real, np.float32(0), _MASKED)[:, None, None, :]
        for layer in self._layers:
            hidden = self._apply(layer, hidden, bias)
        pooled: Array = np.einsum("bth,bt->bh", hidden.reshape(batch, longest, -1), real.astype(np.float32))
        # The mean's divisor falls out of the normalization.
        pooled /= np.linalg.norm(pooled, axis=1, keepdims=True)
        return pooled

    def _embed_tokens(self, tokens: list[list[int]], longest: int) -> Array:
        """Sum of word, position and type embeddings, shape [B * T, H]; what is padded is masked later."""
        rows = {token: self._words[token : token + 1][0] for ids in tokens for token in ids}
        hidden = np.zeros((len(tokens), longest, self.width), dtype=np.float32)
        for place, ids in zip(hidden, tokens, strict=True):
            place[: len(ids)] = [rows[token] for token in ids]
        hidden += self._positions[:longest]
        return _normalize(hidden.reshape(-1, self.width), self._input_norm, self._epsilon)

    def _apply(self, layer: _Layer, hidden: Array, bias: Array) -> Array:
        """One encoder layer over hidden states of shape [B * T, H]; bias of shape [B, 1, 1, T]."""
        batch, longest = bias.shape[0], bias.shape[3]
        split = layer.attention_in(hidden).reshape(batch, longest, 3, self._heads, -1)
        queries, keys, values = split.transpose(2, 0, 3, 1, 4)  # each [B, A, T, H / A]
        scores = queries @ keys.swapaxes(2, 3)
        scores *= np.float32(1 / math.sqrt(queries.shape[3]))
        scores += bias
        scores -= scores.max(axis=3, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=3, keepdims=True)
        mixed = (scores @ values).transpose(0, 2, 1, 3).reshape(batch * longest, -1)
        attended = _normalize(hidden + layer.attention_out(mixed), layer.attention_norm, self._epsilon)
        wide = layer.widen(attended)
        for start in range(0, len(wide), _ROWS_AT_ONCE):
            _gelu_in_place(wide[start : start + _ROWS_AT_ONCE])
        return _normalize(attended + layer.narrow(wide), layer.output_norm, self._epsilon)


def _batches(lengths: list[int]) -> Iterator[list[int]]:
    """Positions of the texts in batches of similar length, so that little is computed for padding."""
    batch: list[int] = []
    for position in sorted(range(len(lengths)), key=lambda position: lengths[position]):
        if batch and (len(batch) + 1) * lengths[position] > _TOKENS_AT_ONCE:
            yield batch
            batch = []
        batch.append(position)
    if batch:
        yield batch


def _normalize(x: Array, norm: tuple[Array, Array], epsilon: float) -> Array:
    """Layer normalization of each row of x."""
    scale, shift = norm
    x = x - x.mean(axis=1, keepdims=True)
    variance = np.einsum("nh,nh->n", x, x)[:, None] / np.float32(x.shape[1])
    x /= np.sqrt(variance + np.float32(epsilon))
    x *= scale
    x += shift
    return x


def _gelu_in_place(x: Array) -> None:
    """``x * (1 + erf(x / sqrt 2)) / 2``; Hendrycks and Gimpel, Gaussian Error Linear Units, 2016."""
    scaled = np.abs(x)
    scaled *= np.float32(math.sqrt(0.5))
    t = scaled * _ERF_P
    t += np.float32(1)
    np.reciprocal(t, out=t)
    series = t * _ERF_A[4]
    for coefficient in reversed(_ERF_A[:4]):
        series += coefficient
        series *= t
    np.square(scaled, out=scaled)
    np.negative(scaled, out=scaled)
    np.exp(scaled, out=scaled)
    series *= scaled
    np.subtract(np.float32(1), series, out=series)
    np.copysign(series, x, out=series)
    series += np.float32(1)
    series *= np.float32(0.5)
    x *= series


def _read_norm(read: Any, name: str) -> tuple[Array, Array]:
    return read(f"{name}.weight"), read(f"{name}.bias")


def _read_layer(read: Any, name: str) -> _Layer:
    def linear(*places: str) -> _Linear:
        # Stored as [out, in]; the transposed view is what BLAS takes as it is.
        weight = np.concatenate([read(f"{name}.{place}.weight") for place in places])
        return _Linear(weight.T, np.concatenate([read(f"{name}.{place}.bias") for place in places]))

    return _Layer(
        attention_in=linear("attention.self.query", "attention.self.key", "attention.self.value"),
        attention_out=linear("attention.output.dense"),
        attention_norm=_read_norm(read, f"{name}.attention.output.LayerNorm"),
        widen=linear("intermediate.dense"),
        narrow=linear("output.dense"),
        output_norm=_read_norm(read, f"{name}.output.LayerNorm"),
    )


def _read_config(folder: Path) -> dict[str, Any]:
    """``config.json``, when the whole folder describes the one architecture.

    Raises:
        NotThisArchitecture: it does not.
    """
    config = _read_json(folder / "config.json")
    pooling = _read_json(folder / "1_Pooling" / "config.json")
    length = _read_json(folder / "sentence_bert_config.json")
    prompts = _read_json(folder / "config_sentence_transformers.json")
    modules = [str(module.get("type", "")).rpartition(".")[2] for module in _read_json(folder / "modules.json")]
    modes = {key for key, value in pooling.items() if key.startswith("pooling_mode") and value}
    differing = [f"{key} is {config.get(key)}" for key, wanted in _CONFIG.items() if config.get(key) != wanted]
    if tuple(modules) != _MODULES:
        differing.append(f"its modules are {', '.join(modules)}")
    if modes != {_MEAN_POOLING}:
        differing.append(f"it pools by {', '.join(sorted(modes)) or 'nothing'}")
    if length.get("do_lower_case") or not isinstance(length.get("max_seq_length"), int):
        differing.append("sentence_bert_config.json asks for more than a length")
    if prompts.get("default_prompt_name"):
        differing.append("it puts a prompt before each text")
    sizes = ("num_attention_heads", "hidden_size", "num_hidden_layers", "layer_norm_eps", "max_position_embeddings")
    differing += [f"config.json has no {key}" for key in sizes if key not in config]
    if differing:
        raise NotThisArchitecture(f"{folder}: {'; '.join(differing)}")
    return {**config, "max_seq_length": min(length["max_seq_length"], config["max_position_embeddings"])}


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as exc:
        raise NotThisArchitecture(f"{path}: {exc}") from exc


def _load_tokenizer(folder: Path, config: dict[str, Any]) -> Tokenizer:
    from tokenizers import Tokenizer

    settings = _read_json(folder / "tokenizer_config.json")
    described = _read_json(folder / "tokenizer.json")
    normalizer = described.get("normalizer") or {}
    if not str(settings.get("tokenizer_class", "")).startswith("BertTokenizer") or (
        normalizer.get("lowercase") != settings.get("do_lower_case")
    ):
        raise NotThisArchitecture(f"{folder}: tokenizer_config.json and tokenizer.json are not BERT's, or differ")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(config["max_seq_length"])
    return tokenizer
