"""A target platform of another vendor is a Turtle file: no line of code knows of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kgraph.load import curated_files
from kgraph.names import PREFIXES
from tests.cli.conftest import Kx, parse_one_object

ACCELERATOR = (
    "".join(f"@prefix {prefix}: <{namespace}> .\n" for prefix, namespace in PREFIXES.items())
    + """
@prefix npu: <urn:kx:primitive:npu:> .
platform:npu a kx:Platform, kx:TargetPlatform ; skos:prefLabel "An accelerator of another vendor" .
gpu:npu1 a kx:GpuFamily ; skos:prefLabel "Its first generation" .
source:npu-manual a kx:Source ; dct:title "Its manual" .
npu:lane-sum a kx:Primitive ; skos:prefLabel "lane_sum" ; kx:platform platform:npu ; kx:token "lane_sum" ;
    skos:definition "Sum over the lanes of a group." ; kx:realizes concept:warp-shuffle-reduction .
map:warp-reduce-to-npu-lane-sum a kx:Mapping ; kx:from cuda:warp-reduce ; kx:to npu:lane-sum ;
    kx:relation skos:closeMatch ; kx:advice "lane_sum(v)." ; kx:rationale "Native." ; kx:confidence 0.95 ;
    kx:basis "documented by vendor" ; kx:status "confirmed" ; kx:constrainedBy limit:npu-lanes ;
    dct:source source:npu-manual .
limit:npu-lanes a kx:Constraint ; skos:prefLabel "A group has 64 lanes" ; kx:quantity "simd-width" ;
    kx:comparison "=" ; kx:value 64 ; kx:unit "lanes" ; kx:scope platform:npu ; kx:basis "documented by vendor" ;
    dct:source source:npu-manual .
quantity:npu-a-gpu-cores a kx:Quantity ; kx:quantity "gpu-cores" ; kx:value 4 ; kx:unit "cores" ;
    kx:basis "documented by vendor" ; dct:source source:npu-manual .
chip:npu-a a kx:Chip ; skos:notation "npu-a" ; skos:prefLabel "NPU A" ; kx:platform platform:npu ;
    kx:gpuFamily gpu:npu1 ; kx:hasQuantity quantity:npu-a-gpu-cores .
"""
)


@pytest.fixture
def with_accelerator(kx: Kx, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kx:
    """kx over the curated files and one more."""
    file = tmp_path / "npu.ttl"
    file.write_text(ACCELERATOR, encoding="utf-8")
    monkeypatch.setattr("kgraph.stores.files.curated_files", lambda: [*curated_files(), file])
    return kx


def test_its_mappings_limits_and_specification_are_told(with_accelerator: Kx) -> None:
    kx = with_accelerator
    answer = parse_one_object(kx("map", "warp_reduce", "--target", "npu", "--json"))
    assert [(found["to"], found["platform"]) for found in answer["mappings"]] == [("lane_sum", "npu")]
    on_chip = parse_one_object(kx("map", "warp_reduce", "--chip", "npu-a", "--target", "npu", "--json"))
    assert [limit["value"] for limit in on_chip["mappings"][0]["constraints"]] == [64]
    assert "__shfl" not in kx("map", "lane_sum").stdout
    assert "warp_reduce" in kx("map", "lane_sum").stdout

    told = kx("spec", "--kernel", "reduction", "--chip", "npu-a").stdout
    assert "## From CUDA to Npu\n- warp_reduce → lane_sum (close): lane_sum(v)." in told
    assert "simd-width = 64 lanes [npu]" in told
    assert "gpu-cores: 4 cores [npu-a" in told
    assert "simdgroup" not in told.split("## What must hold")[0]

    refused = kx("map", "warp_reduce", "--target", "npx")
    assert refused.exit_code == 2
    assert "known: metal, mlx, npu" in refused.stderr
