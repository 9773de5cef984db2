"""Every detector against snippets that show its technique and snippets that only look like it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ingest.detectors import detect, registered, versions_digest
from ingest.parse import parse
from kgraph.graph import KnowledgeGraph
from kx.paths import Home

SNIPPETS = Path(__file__).parents[2] / "data" / "cuda"
REPORTED = 0.5
"""Confidence from which a detection says that the technique is there."""


def snippets() -> list[tuple[str, str, str, str]]:
    """(verdict, slug, remark, code) of every section ``//@ present|absent slug remark`` of the data files."""
    found = []
    for file in sorted(SNIPPETS.glob("*.cu")):
        for section in file.read_text(encoding="utf-8").split("//@ ")[1:]:
            head, code = section.split("\n", 1)
            verdict, slug, *remark = head.split(" ", 2)
            found.append((verdict, slug, " ".join(remark), code))
    return found


def slugs_in(code: str) -> set[str]:
    return {d.slug for d in detect(parse(code)) if d.confidence >= REPORTED}


@pytest.mark.parametrize(
    ("verdict", "slug", "code"),
    [pytest.param(v, s, c, id=f"{v}-{s}-{r}".rstrip("-")) for v, s, r, c in snippets()],
)
def test_snippet(verdict: str, slug: str, code: str) -> None:
    assert (slug in slugs_in(code)) == (verdict == "present")


def test_every_detector_has_both_kinds_of_snippet() -> None:
    slugs = {entry.slug for entry in registered()}
    for verdict in ("present", "absent"):
        assert {slug for v, slug, _, _ in snippets() if v == verdict} == slugs


def test_detectors_cover_the_vocabulary_exactly(tmp_path: Path) -> None:
    graph = KnowledgeGraph.open(Home(tmp_path))
    assert {entry.slug for entry in registered()} == {concept.slug for concept in graph.concepts()}


def test_commented_out_techniques_do_not_count() -> None:
    for verdict, slug, _, code in snippets():
        if verdict == "present":
            hidden = "\n".join(f"// {line}" for line in code.replace("\\\n", "\n").splitlines())
            assert slug not in slugs_in(f"{hidden}\n__global__ void k(float* o) {{ o[0] = 0.f; }}\n"), slug


def test_dead_branches_do_not_count() -> None:
    for verdict, slug, _, code in snippets():
        if verdict == "present":
            assert slug not in slugs_in(f"#if 0\n{code}\n#endif\n__global__ void k(float* o) {{ o[0] = 0.f; }}\n"), slug


def test_the_living_branch_of_a_dead_one_counts() -> None:
    code = "#if 0\nint a;\n#else\n__global__ void k() { __syncthreads(); }\n#endif\n"
    assert "block-barrier" in slugs_in(code)


def test_renaming_identifiers_keeps_online_softmax() -> None:
    code = next(c for v, s, _, c in snippets() if (v, s) == ("present", "online-softmax"))
    for old, new in (("m_new", "zeta"), ("correction", "factor"), ("acc", "result"), ("\\bm\\b", "peak")):
        code = re.sub(old, new, code)
    assert "online-softmax" in slugs_in(code)


def test_lines_and_owner_of_a_detection() -> None:
    code = "\n\n__device__ void wait() {\n    __syncthreads();\n}\n__global__ void work() { wait(); }\n"
    (found,) = detect(parse(code))
    assert (found.slug, found.first_line, found.last_line, found.kernel) == ("block-barrier", 4, 4, "work")
    assert found.detector == "block-barrier@1"
    assert "__syncthreads" in found.why


def test_a_device_function_of_two_kernels_keeps_its_own_name() -> None:
    code = (
        "__device__ void wait() { __syncthreads(); }\n"
        "__global__ void a() { wait(); }\n__global__ void b() { wait(); }\n"
    )
    assert detect(parse(code))[0].kernel == "wait"


def test_digest_names_the_versions() -> None:
    assert re.fullmatch(r"[0-9a-f]{16}", versions_digest())
