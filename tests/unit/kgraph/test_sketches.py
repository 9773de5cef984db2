"""Every sketch of a pattern is Metal that compiles, and computes what numpy says."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from kgraph.decode import slug_of
from kgraph.graph import KnowledgeGraph
from kgraph.model import Pattern
from kx.paths import Home
from metalsim import (
    Argument,
    CompiledFile,
    CompiledKernel,
    CompileFailure,
    FileOptions,
    Fresh,
    MlxKernel,
    compile_file,
    compile_kernel,
    run,
    run_file,
)
from tests.unit.kgraph.sketch_trials import FILE_TRIALS
from tests.unit.kgraph.sketch_trials import TRIALS as FIRST_TRIALS
from tests.unit.kgraph.small_batch_trials import MOMENTS_AND_LOSSES, SMALL_BATCHES

TRIALS = {**FIRST_TRIALS, **SMALL_BATCHES, **MOMENTS_AND_LOSSES}
Compiled = CompiledKernel | CompiledFile | CompileFailure

with tempfile.TemporaryDirectory() as _folder:
    PATTERNS = {slug_of(p.iri): p for p in KnowledgeGraph.open(Home(Path(_folder))).patterns()}
PROLOGUE = "#include <metal_stdlib>\n#include <metal_simdgroup_matrix>\nusing namespace metal;\n\n"
COMPILERS = 3


def is_kernel(pattern: Pattern) -> bool:
    return "kernel void " in pattern.sketch


def kernel_of(slug: str) -> MlxKernel:
    trial = TRIALS[slug]
    inputs = tuple(Argument(name, array.dtype.name, array.shape) for name, array in trial.inputs.items())
    outputs = tuple(Argument(name, dtype_of(array), array.shape) for name, array in trial.expected.items())
    atomic = trial.init_value is not None
    return MlxKernel("sketch", trial.body, inputs, outputs, PATTERNS[slug].sketch, atomic_outputs=atomic)


def dtype_of(array: np.ndarray) -> str:
    return "float32" if array.dtype == np.float64 else array.dtype.name


def compile_sketch(slug: str, cache: Path) -> Compiled:
    sketch = PATTERNS[slug].sketch
    if not is_kernel(PATTERNS[slug]):
        return compile_kernel(kernel_of(slug), mode="checked", cache=cache)
    name = sketch.split("kernel void ")[1].split("(")[0]
    options = FileOptions(constants=FILE_TRIALS[slug].constants)
    return compile_file(PROLOGUE + sketch, name, mode="checked", cache=cache, options=options)


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Compiled]:
    """Every sketch, compiled once, a few at a time."""
    cache = tmp_path_factory.mktemp("sketches")
    with ThreadPoolExecutor(COMPILERS) as pool:
        return dict(zip(PATTERNS, pool.map(lambda slug: compile_sketch(slug, cache), PATTERNS), strict=True))


@pytest.mark.parametrize("slug", PATTERNS)
def test_a_sketch_compiles(compiled, slug):
    assert PATTERNS[slug].sketch
    assert not isinstance(compiled[slug], CompileFailure), compiled[slug].messages


@pytest.mark.parametrize("slug", TRIALS)
def test_a_sketch_computes_what_numpy_says(compiled, slug):
    trial = TRIALS[slug]
    shapes = {name: array.shape for name, array in trial.expected.items()}
    size = (trial.threads, 1, 1)
    result = run(compiled[slug], trial.inputs, shapes, grid=size, threadgroup=size, init_value=trial.init_value)
    assert [finding.message for finding in result.findings] == []
    for name, expected in trial.expected.items():
        scale = float(np.max(np.abs(expected.astype(np.float64))))
        error = np.max(np.abs(result.outputs[name].astype(np.float64) - expected.astype(np.float64)))
        assert error <= trial.tolerance * scale, (name, error)


@pytest.mark.parametrize("slug", FILE_TRIALS)
def test_a_sketched_kernel_computes_what_numpy_says(compiled, slug):
    trial = FILE_TRIALS[slug]
    buffers = {i: Fresh(array.dtype.name, array.shape) for i, array in trial.expected.items()} | trial.inputs
    result = run_file(compiled[slug], buffers, grid=(trial.grid, 1, 1), threadgroup=(trial.threads, 1, 1))
    assert [finding.message for finding in result.findings] == []
    by_index = dict(enumerate(result.outputs.values()))
    for got, expected in zip(by_index.values(), trial.expected.values(), strict=True):
        np.testing.assert_allclose(got, expected, rtol=2e-6)


def test_every_sketch_is_tried():
    kernels = {slug for slug, pattern in PATTERNS.items() if is_kernel(pattern)}
    assert set(FILE_TRIALS) == kernels
    assert set(TRIALS) == set(PATTERNS) - kernels


def test_sketches_that_stand_beside_each_other_are_not_long():
    for slug, pattern in PATTERNS.items():
        lines = pattern.sketch.splitlines()
        assert len(lines) <= 32, slug
        assert max(map(len, lines)) <= 124, slug
