"""Faults that an editor of the graph makes: each is reported by a message and a severity of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from rdflib import RDF, Graph

from kgraph.names import PREFIXES
from kgraph.validate import Severity, check_definitions, check_graph
from tests.unit.kgraph.valid_graph import Fault, add, drop, put, valid_graph


def both(*faults: Fault) -> Fault:
    def plant(graph: Graph) -> None:
        for fault in faults:
            fault(graph)

    return plant


def iri(name: str) -> str:
    prefix, _, local = name.partition(":")
    return PREFIXES[prefix] + local


PLANTED: dict[str, tuple[Fault, str, str, Severity]] = {
    "missing unit": (
        drop("limit:l", "kx:unit"), "limit:l", "A constraint has a unit (1 for a pure number).", "error",
    ),
    "missing source": (drop("map:m", "dct:source"), "map:m", "A mapping names its source.", "error"),
    "missing confidence": (
        drop("map:m", "kx:confidence"), "map:m", "A mapping's confidence is a number from 0 to 1.", "error",
    ),
    "constraint without basis": (
        drop("limit:l", "kx:basis"), "limit:l", "A constraint says what the trust in it rests on.", "error",
    ),
    "wrong relation word": (
        put("map:m", "kx:relation", "skos:related"), "map:m",
        "A mapping's relation is one of skos:exactMatch, closeMatch, broadMatch, narrowMatch and kx:noMatch.", "error",
    ),
    "dangling link": (
        put("concept:a", "kx:enables", "concept:gone"), "concept:a",
        "Every urn:kx: node that is pointed at has a class. Here: kx:enables points to "
        "concept:gone, which is not described.", "error",
    ),
    "cyclic requires": (
        put("concept:b", "kx:requires", "concept:a"), "concept:b",
        "Kx:requires is free of cycles. Here: requires itself by way of others.", "error",
    ),
    "concept without mapping": (
        put("cuda:p", "kx:realizes", "concept:a"), "concept:b",
        "Each concept is realized by a CUDA primitive with a mapping, be it kx:noMatch with advice. "
        "Here: no mapping of a CUDA primitive that realizes it.", "error",
    ),
    "token of two primitives": (
        put("cuda:r", "kx:token", "p"), "cuda:p",
        "A token belongs to one primitive of a platform. Here: shares the token p with cuda:r.",
        "error",
    ),
    "constraint without scope": (
        drop("limit:l", "kx:scope"), "limit:l",
        "A constraint holds for one platform, GPU family, chip, feature or aspect of the graph.", "error",
    ),
    "value no number": (put("limit:l", "kx:value", "many"), "limit:l", "A constraint has one number.", "error"),
    "unknown comparison": (
        put("limit:l", "kx:comparison", "at most"), "limit:l",
        "A constraint's comparison is <=, <, =, >=, > or multiple-of.", "error",
    ),
    "pattern without sketch": (
        drop("pattern:t", "kx:sketch"), "pattern:t", "A pattern shows a sketch in Metal.", "warning",
    ),
    "assertion without check": (
        drop("assertion:e", "kx:check"), "assertion:e", "An assertion names its check by id.", "error",
    ),
    "pattern without problem": (
        drop("pattern:t", "kx:problem"), "pattern:t", "A pattern states one problem.", "error",
    ),
    "pattern for a class that is none": (
        put("pattern:t", "kx:appliesTo", "concept:a"), "pattern:t",
        "A pattern applies to kernel classes of the graph.", "error",
    ),
    "pattern shown by no assertion": (
        put("pattern:t", "kx:shownBy", "limit:l"), "pattern:t", "A pattern is shown right by assertions of the graph.",
        "error",
    ),
    "assertion without failure": (
        drop("assertion:e", "kx:failure"), "assertion:e",
        "An assertion says what is wrong in a kernel that breaks it.", "error",
    ),
    "unknown strictness": (
        put("assertion:e", "kx:strictness", "roughly"), "assertion:e",
        "An assertion's strictness is exact, rounding or performance.", "error",
    ),
    "unknown checker": (
        put("assertion:e", "kx:checkedBy", "somebody"), "assertion:e",
        "An assertion says who checks it: task:, gate: or metalsim: with a name, or 'not executable yet'.", "error",
    ),
    "task without concepts": (drop("task:k", "kx:uses"), "task:k", "A task uses concepts of the graph.", "error"),
    "task of no class": (
        put("task:k", "kx:ofClass", "concept:a"), "task:k", "A task belongs to one kernel class of the graph.", "error",
    ),
    "fact without confidence": (
        drop("fact:f", "kx:confidence"), "fact:f", "A fact's confidence is a number from 0 to 1.", "error",
    ),
    "feature that covers no primitive": (
        put("feature:g", "kx:covers", "concept:a"), "feature:g", "A feature covers primitives of the graph.", "error",
    ),
    "aspect of no platform": (
        put("aspect:h", "kx:platform", "gpu:apple7"), "aspect:h", "An aspect is one of a platform of the graph.",
        "error",
    ),
    "platform without label": (
        drop("platform:metal", "skos:prefLabel"), "platform:metal", "A platform has one label.", "error",
    ),
    "token family without a glob": (
        add("cuda:p", "kx:tokenFamily", "cublas"), "cuda:p",
        "A token family is a glob with a * and three letters in a row.", "error",
    ),
    "token family of two primitives": (
        both(add("cuda:p", "kx:tokenFamily", "cublas*"), add("cuda:r", "kx:tokenFamily", "cublas*")), "cuda:p",
        "A token family belongs to one primitive of a platform. Here: shares cublas* with cuda:r.", "error",
    ),
    "correction pointing nowhere": (
        put("map:c", "kx:correctedBy", "map:gone"), "map:c", "A claim is corrected by one mapping of the graph.",
        "error",
    ),
    "chip without family": (
        drop("chip:m1", "kx:gpuFamily"), "chip:m1", "A chip has one GPU family of the graph.", "error",
    ),
    "chip without quantities": (drop("chip:m1", "kx:hasQuantity"), "chip:m1", "A chip has quantities.", "error"),
    "quantity of wrong unit": (
        put("quantity:x", "kx:unit", "GHz"), "quantity:x",
        "Every figure has the unit of its kx:QuantityKind. Here: gpu-cores in GHz is not a described quantity.",
        "error",
    ),
    "limit of wrong unit": (
        put("limit:l", "kx:unit", "B"), "limit:l",
        "Every figure has the unit of its kx:QuantityKind. Here: buffer-arguments in B is not a described quantity.",
        "error",
    ),
    "two values of a functional property": (
        add("map:m", "kx:status", "claimed"), "map:m",
        "A functional property (owl:FunctionalProperty in the schema) has one value per node. "
        "Here: kx:status is claimed and corrected.", "error",
    ),
    "source that nothing rests on": (
        both(put("source:lonely", "dct:title", "Unread"), put("source:lonely", str(RDF.type), "kx:Source")),
        "source:lonely", "Sources are listed because facts name them. Here: no fact names it.", "warning",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("fault", "node", "message", "severity"), PLANTED.values(), ids=PLANTED.keys())
def test_a_planted_fault_has_its_own_message(fault: Fault, node: str, message: str, severity: Severity) -> None:
    graph = valid_graph()
    fault(graph)
    found = [item for item in check_graph(graph) if (item.node, item.message) == (iri(node), message)]
    assert [item.severity for item in found] == [severity]
    assert found[0].solution, "the report says how to mend it"


NPU = """
platform:npu a kx:Platform, kx:TargetPlatform ; skos:prefLabel "An accelerator of another vendor" .
gpu:npu1 a kx:GpuFamily ; skos:prefLabel "Its first generation" .
<urn:kx:primitive:npu:lane-sum> a kx:Primitive ; skos:prefLabel "lane_sum" ; kx:platform platform:npu ;
    kx:token "lane_sum" .
map:p-to-npu-lane-sum a kx:Mapping ; kx:from cuda:p ; kx:to <urn:kx:primitive:npu:lane-sum> ;
    kx:relation skos:closeMatch ; kx:advice "lane_sum(v)." ; kx:rationale "Native." ; dct:source source:s ;
    kx:confidence 0.95 ; kx:basis "documented by vendor" ; kx:status "confirmed" .
limit:npu-lanes a kx:Constraint ; skos:prefLabel "At most 8" ; kx:quantity "buffer-arguments" ; kx:comparison "<=" ;
    kx:value 8 ; kx:unit "entries" ; kx:scope platform:npu ; dct:source source:s ; kx:basis "documented by vendor" .
quantity:npu-a-gpu-cores a kx:Quantity ; kx:quantity "gpu-cores" ; kx:value 4 ; kx:unit "cores" ;
    kx:basis "documented by vendor" ; dct:source source:s .
chip:npu-a a kx:Chip ; skos:prefLabel "NPU A" ; kx:platform platform:npu ; kx:gpuFamily gpu:npu1 ;
    kx:hasQuantity quantity:npu-a-gpu-cores .
"""


def test_another_vendors_accelerator_is_data() -> None:
    """Its platform, primitives, mappings, limits and chips are valid without a line of code."""
    prefixes = "".join(f"@prefix {prefix}: <{namespace}> .\n" for prefix, namespace in PREFIXES.items())
    graph = valid_graph().parse(data=prefixes + NPU, format="turtle")
    assert check_graph(graph) == []


def test_no_two_faults_share_a_message() -> None:
    messages = [message for _, _, message, _ in PLANTED.values()]
    assert len(set(messages)) == len(messages)


def test_a_node_described_in_two_files_names_both(tmp_path: Path) -> None:
    """Merged, the two descriptions would become one node with the values of both."""
    first, second = tmp_path / "limits-a.ttl", tmp_path / "limits-b.ttl"
    first.write_text("limit:l a kx:Constraint ;\n    kx:value 1 .\nlimit:k a kx:Constraint .\n", encoding="utf-8")
    second.write_text("<urn:kx:constraint:l> a kx:Constraint ;\n    kx:value 2 .\n", encoding="utf-8")
    (found,) = check_definitions([first, second])
    assert (found.node, found.check) == (iri("limit:l"), "repeated-definition")
    assert found.message == "A node is described once. Here: at limits-a.ttl:1 and at limits-b.ttl:1."
    assert found.solution
    assert check_definitions([first]) == []
