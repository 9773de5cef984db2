"""A platform of another vendor, added as data: its mappings are told for its chips and for no other."""

from __future__ import annotations

from pathlib import Path

import pytest
from rdflib import Graph

from kgraph.graph import KnowledgeGraph
from kgraph.load import plain_triples
from kgraph.names import CURATED, PREFIXES
from kgraph.stores.files import FileGraphStore
from kgraph.triples import Triple
from kx.paths import Home
from retrieval.context import build_context
from retrieval.spec import select_spec

NPU = """
platform:npu a kx:Platform, kx:TargetPlatform ; skos:prefLabel "An accelerator of another vendor" .
gpu:npu1 a kx:GpuFamily ; skos:prefLabel "Its first generation" .
<urn:kx:primitive:npu:lane-sum> a kx:Primitive ; skos:prefLabel "lane_sum" ; kx:platform platform:npu ;
    kx:token "lane_sum" ; kx:realizes concept:warp-shuffle-reduction .
map:warp-reduce-to-npu-lane-sum a kx:Mapping ; kx:from cuda:warp-reduce ; kx:to <urn:kx:primitive:npu:lane-sum> ;
    kx:relation skos:closeMatch ; kx:advice "lane_sum(v)." ; kx:rationale "Native." ; kx:confidence 0.95 ;
    kx:basis "documented by vendor" ; kx:status "confirmed" ; dct:source source:source-survey .
limit:npu-lanes a kx:Constraint ; skos:prefLabel "A group has 64 lanes" ; kx:quantity "simd-width" ;
    kx:comparison "=" ; kx:value 64 ; kx:unit "lanes" ; kx:scope platform:npu ; kx:basis "documented by vendor" ;
    dct:source source:source-survey .
quantity:npu-a-gpu-cores a kx:Quantity ; kx:quantity "gpu-cores" ; kx:value 4 ; kx:unit "cores" ;
    kx:basis "documented by vendor" ; dct:source source:source-survey .
chip:npu-a a kx:Chip ; skos:prefLabel "NPU A" ; kx:platform platform:npu ; kx:gpuFamily gpu:npu1 ;
    kx:hasQuantity quantity:npu-a-gpu-cores .
"""


class ExtendedStore(FileGraphStore):
    """The store of a data folder whose curated knowledge has the accelerator besides."""

    def read(self, name: str) -> list[Triple]:
        prefixes = "".join(f"@prefix {prefix}: <{namespace}> .\n" for prefix, namespace in PREFIXES.items())
        added = plain_triples(Graph().parse(data=prefixes + NPU, format="turtle")) if name == CURATED else []
        return [*super().read(name), *added]


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> KnowledgeGraph:
    home: Path = tmp_path_factory.mktemp("extended")
    return KnowledgeGraph(ExtendedStore(Home(home)))


def test_map_lists_every_platform(extended: KnowledgeGraph) -> None:
    platforms = {mapping.platform for mapping in extended.lookup("warp_reduce").mappings}
    assert platforms == {"metal", "npu"}


def test_a_specification_tells_what_leads_to_its_chip(extended: KnowledgeGraph) -> None:
    there = select_spec(extended, "reduction", "npu-a")
    assert [mapping.advice for mapping in there.mappings] == ["lane_sum(v)."]
    assert [(limit.quantity, limit.value) for limit in there.limits] == [("simd-width", 64)]
    assert there.patterns == ()
    here = select_spec(extended, "reduction", "m1-max")
    assert {mapping.platform for mapping in here.mappings} <= {"metal", "mlx"}


def test_a_context_tells_what_leads_to_its_chip(extended: KnowledgeGraph) -> None:
    def platforms(chip: str) -> set[str]:
        context = build_context(
            extended, None, concepts=["warp-shuffle-reduction"], kernel_class="reduction", chip=chip
        )
        return {mapping.platform for mapping in context.mappings}

    assert platforms("npu-a") == {"npu"}
    assert platforms("m3-max") <= {"metal", "mlx"}
