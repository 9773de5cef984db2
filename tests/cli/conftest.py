from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kx.cli import main
from tests.unit.retrieval.doubles import HashingEmbedder

Kx = Callable[..., Result]

SCAN = """\
#include <cub/block/block_scan.cuh>
template <int kThreads>
__global__ void __launch_bounds__(kThreads) scan_kernel(const float* __restrict__ in, float* out, int n) {
  __shared__ float partial[32];
  float value = in[threadIdx.x];
  #pragma unroll
  for (int offset = 1; offset < 32; offset <<= 1) {
    float other = __shfl_up_sync(0xffffffff, value, offset);
    if (threadIdx.x % 32 >= offset) value += other;
  }
  if (threadIdx.x % 32 == 31) partial[threadIdx.x / 32] = value;
  __syncthreads();
  out[threadIdx.x] = value + partial[0];
}
"""


@pytest.fixture(scope="session")
def parsed_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder's cache that already holds the parsed curated knowledge."""
    from kgraph.graph import KnowledgeGraph
    from kx.paths import Home

    home = Home(tmp_path_factory.mktemp("parsed"))
    KnowledgeGraph.open(home).stats()
    return home.cache


@pytest.fixture
def home(tmp_path: Path, parsed_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data folder, made the current one; the current folder is ``tmp_path``."""
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "cache").symlink_to(parsed_cache, target_is_directory=True)
    monkeypatch.setenv("KX_HOME", str(folder))
    monkeypatch.delenv("KX_EMBEDDING_MODEL", raising=False)
    monkeypatch.delenv("KX_CHIP", raising=False)
    monkeypatch.chdir(tmp_path)
    return folder


@pytest.fixture
def kx(home: Path, monkeypatch: pytest.MonkeyPatch) -> Kx:
    """Run kx with a cheap embedder in place of the model."""
    monkeypatch.setattr("retrieval.embedding.SentenceEmbedder", lambda folder: HashingEmbedder())

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(main, list(arguments), prog_name="kx")

    return run


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A folder with one CUDA file and one that is none."""
    folder = tmp_path / "sources"
    folder.mkdir()
    (folder / "scan.cu").write_text(SCAN)
    (folder / "notes.txt").write_text("not CUDA")
    return folder


def parse_one_object(result: Result) -> dict[str, Any]:
    """Stdout must be exactly one JSON object."""
    parsed = json.loads(result.stdout)
    assert isinstance(parsed, dict)
    return parsed
