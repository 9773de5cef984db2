"""Each rule of the shapes and each query finds the fault it is there for, and says so in its own words."""

from __future__ import annotations

import pytest
from rdflib import RDF, Graph, URIRef

from kgraph.load import package_files, parse_turtle
from kgraph.validate import check_queries, check_shapes
from tests.unit.kgraph.test_planted_faults import PLANTED, both
from tests.unit.kgraph.valid_graph import Fault, add, drop, iri, put, valid_graph

FILE, EVIDENCE, USE, SEEN = "urn:kx:file:f", "urn:kx:file:f:evidence:0", "urn:kx:file:f:use:0", "urn:kx:observation:o"
KIND = "urn:kx:quantity-kind:gpu-cores"
FAULTS: list[tuple[Fault, str]] = [
    (
        put("concept:a", "skos:notation", "Not A Slug"),
        "A concept has one slug (skos:notation) of lower-case words and hyphens.",
    ),
    (drop("concept:a", "skos:prefLabel"), "A concept has one label."),
    (drop("concept:a", "skos:definition"), "A concept has one definition."),
    (
        put("concept:a", "kx:family", "magic"),
        "A concept's family is memory, compute, reduction, algorithm or schedule.",
    ),
    (put("concept:a", "kx:serves", "concept:b"), "A concept serves at least one kernel class of the graph."),
    (put("concept:a", "kx:addresses", "luck"), "A concept addresses bandwidth, latency, compute or synchronization."),
    (put("concept:a", "kx:requires", "concept:gone"), "A concept requires concepts of the graph."),
    (put("concept:a", "kx:conflictsWith", "cuda:p"), "A concept conflicts with concepts of the graph."),
    (put("concept:a", "kx:enables", "concept:gone"), "A concept enables concepts of the graph."),
    (put("concept:a", "kx:difficulty", 6), "A concept's difficulty is a whole number from 1 to 5."),
    (
        put("concept:a", "kx:memoryBandwidthImpact", 11),
        "A concept's impact on memory bandwidth is a whole number from 0 to 10.",
    ),
    (
        put("concept:a", "kx:registerPressureImpact", -1),
        "A concept's impact on register pressure is a whole number from 0 to 10.",
    ),
    (
        put("concept:a", "kx:computeFitImpact", 2.5),
        "A concept's fit to the compute hardware is a whole number from 0 to 10.",
    ),
    (drop("class:scan", "skos:notation"), "A kernel class has one slug."),
    (drop("class:scan", "skos:definition"), "A kernel class has one definition."),
    (drop("cuda:p", "kx:token"), "A primitive has a token of source code or a name that people use (skos:altLabel)."),
    (drop("cuda:p", "skos:prefLabel"), "A primitive has one label."),
    (put("cuda:p", "kx:platform", "gpu:apple7"), "A primitive belongs to one platform of the graph."),
    (put("cuda:p", "kx:token", ""), "A token is not empty."),
    (put("cuda:p", "kx:realizes", "class:scan"), "A primitive realizes concepts of the graph."),
    (drop("map:m", "kx:from"), "A mapping starts from one primitive of the graph."),
    (put("map:m", "kx:to", "concept:a"), "A mapping leads to at most one primitive of the graph."),
    (
        put("map:m", "kx:relation", "skos:relatedMatch"),
        "A mapping's relation is one of skos:exactMatch, closeMatch, broadMatch, narrowMatch and kx:noMatch.",
    ),
    (drop("map:m", "kx:rationale"), "A mapping gives one rationale."),
    (drop("map:m", "kx:advice"), "A mapping says what to write instead."),
    (put("map:m", "kx:pitfall", ""), "A mapping has at most one pitfall, and not an empty one."),
    (drop("map:m", "dct:source"), "A mapping names its source."),
    (put("map:m", "kx:confidence", 1.5), "A mapping's confidence is a number from 0 to 1."),
    (drop("map:m", "kx:basis"), "A mapping says what the trust in it rests on."),
    (put("map:m", "kx:status", "rumoured"), "A mapping's status is claimed, confirmed or corrected."),
    (put("map:m", "kx:constrainedBy", "limit:gone"), "A mapping is bound by constraints of the graph."),
    (put("map:c", "kx:correctedBy", "concept:a"), "A claim is corrected by one mapping of the graph."),
    (drop("limit:l", "skos:prefLabel"), "A constraint has one label."),
    (put("limit:l", "kx:quantity", "Buffer Arguments"), "A constraint names one quantity by its slug."),
    (put("limit:l", "kx:comparison", "about"), "A constraint's comparison is <=, <, =, >=, > or multiple-of."),
    (put("limit:l", "kx:value", "many"), "A constraint has one number."),
    (drop("limit:l", "kx:unit"), "A constraint has a unit (1 for a pure number)."),
    (
        put("limit:l", "kx:scope", "concept:a"),
        "A constraint holds for one platform, GPU family, chip, feature or aspect of the graph.",
    ),
    (drop("limit:l", "kx:basis"), "A constraint says what the trust in it rests on."),
    (drop("limit:l", "dct:source"), "A constraint names its source."),
    (drop("fact:f", "skos:prefLabel"), "A fact is told in one sentence."),
    (put("fact:f", "kx:scope", "concept:a"), "A fact holds for one scope of the graph."),
    (drop("fact:f", "kx:basis"), "A fact says what the trust in it rests on."),
    (put("fact:f", "kx:confidence", 2), "A fact's confidence is a number from 0 to 1."),
    (drop("fact:f", "dct:source"), "A fact names its source."),
    (drop("feature:g", "skos:prefLabel"), "A feature has one label."),
    (put("feature:g", "kx:covers", "concept:a"), "A feature covers primitives of the graph."),
    (drop("aspect:h", "skos:prefLabel"), "An aspect has one label."),
    (drop("aspect:h", "kx:platform"), "An aspect is one of a platform of the graph."),
    (put(KIND, "skos:notation", "GPU Cores"), "A kind of quantity has one slug."),
    (drop(KIND, "skos:definition"), "A kind of quantity has one definition."),
    (drop(KIND, "kx:unit"), "A kind of quantity has one unit."),
    (drop("chip:m1", "skos:prefLabel"), "A chip has one label."),
    (drop("chip:m1", "kx:platform"), "A chip runs at least one platform of the graph."),
    (drop("chip:m1", "kx:gpuFamily"), "A chip has one GPU family of the graph."),
    (drop("chip:m1", "kx:hasQuantity"), "A chip has quantities."),
    (drop("quantity:x", "kx:quantity"), "A quantity has one name."),
    (put("quantity:x", "kx:value", "eight"), "A quantity has one number."),
    (drop("quantity:x", "kx:unit"), "A quantity has a unit (1 for a pure number)."),
    (drop("quantity:x", "kx:basis"), "A quantity says what the trust in it rests on."),
    (drop("quantity:x", "dct:source"), "A quantity names its source."),
    (drop("pattern:t", "skos:prefLabel"), "A pattern has one label."),
    (drop("pattern:t", "skos:definition"), "A pattern is told in words."),
    (put("pattern:t", "kx:sketch", ""), "A pattern has at most one sketch."),
    (drop("pattern:t", "kx:sketch"), "A pattern shows a sketch in Metal."),
    (drop("pattern:t", "kx:about"), "A pattern is about concepts of the graph."),
    (drop("pattern:t", "dct:source"), "A pattern names its source."),
    (drop("assertion:e", "skos:prefLabel"), "An assertion has one label."),
    (drop("assertion:e", "skos:definition"), "An assertion is told in words."),
    (put("assertion:e", "kx:holdsFor", "concept:a"), "An assertion holds for kernel classes of the graph."),
    (drop("assertion:e", "kx:check"), "An assertion names its check by id."),
    (drop("assertion:e", "dct:source"), "An assertion names its source."),
    (drop("source:s", "dct:title"), "A source has one title."),
    (put("source:s", "kx:address", "in words"), "A source has at most one address, an IRI."),
    (drop(FILE, "kx:path"), "An ingested file has one path."),
    (add(FILE, "kx:root", "/a"), "An ingested file counts from one folder."),
    (put(FILE, "kx:sha256", "abc"), "An ingested file has the SHA-256 of its bytes."),
    (put(EVIDENCE, "kx:concept", "concept:gone"), "Evidence is for one concept of the graph."),
    (drop(EVIDENCE, "kx:inFile"), "Evidence lies in one ingested file."),
    (put(EVIDENCE, "kx:firstLine", 0), "Evidence begins at a line, counted from 1."),
    (put(EVIDENCE, "kx:firstLine", 9), "Evidence ends at or after the line where it begins."),
    (drop(EVIDENCE, "kx:lastLine"), "Evidence ends at a line."),
    (
        put(EVIDENCE, "kx:detector", "nameless"),
        "Evidence names its detector and the detector's version, as name@version.",
    ),
    (put(EVIDENCE, "kx:confidence", 2.0), "Evidence has a confidence from 0 to 1."),
    (drop(EVIDENCE, "prov:wasGeneratedBy"), "Evidence was generated by one reading of its file."),
    (put(USE, "kx:primitive", "concept:a"), "A use is of one primitive of the graph."),
    (drop(USE, "kx:inFile"), "A use lies in one ingested file."),
    (drop(USE, "kx:line"), "A use stands at lines."),
    (put(SEEN, "kx:concept", "concept:gone"), "An observation is of one concept of the graph."),
    (drop(SEEN, "kx:run"), "An observation names its run."),
    (drop(SEEN, "kx:task"), "An observation names its task."),
    (drop(SEEN, "kx:outcome"), "An observation tells its outcome."),
    (put(SEEN, "kx:timing", "guessed"), "An observation's timing is estimated or measured."),
    (put(SEEN, "kx:ratio", -1.0), "An observation has one ratio, not negative."),
    (put("task:k", "skos:notation", "Not a name"), "A task has one name (skos:notation) of lower-case words."),
    (drop("task:k", "skos:prefLabel"), "A task has one label."),
    (drop("task:k", "skos:definition"), "A task says what it computes, once."),
    (drop("gpu:apple7", "skos:prefLabel"), "A GPU family has one label."),
    (put("metal:q", "kx:appliesOn", "concept:a"), "A primitive exists on GPU families of the graph."),
    (put("map:m", "kx:about", "cuda:p"), "A mapping is of use beside concepts of the graph."),
    (put("map:m", "kx:appliesTo", "concept:a"), "A mapping is of use in kernel classes of the graph."),
    (put("limit:l", "kx:about", "cuda:p"), "A constraint concerns kernels that use concepts of the graph."),
    (put("pattern:t", "kx:onlyFor", "concept:a"), "A pattern belongs to tasks of the graph."),
    (put("pattern:t", "kx:appliesOn", "concept:a"), "A pattern applies on GPU families of the graph."),
    (put("pattern:t", "kx:requirement", ""), "A pattern states its requirement in one text."),
    (put("pattern:t", "kx:constrainedBy", "concept:a"), "A pattern is bound by constraints of the graph."),
    (put("pattern:t", "kx:conflictsWith", "concept:a"), "A pattern conflicts with patterns of the graph."),
    (put("pattern:t", "kx:insteadOf", "cuda:p"), "A pattern takes the place of concepts of the graph."),
    (drop("pattern:t", "kx:basis"), "A pattern says what the trust in it rests on."),
    (put("pattern:t", "kx:confidence", 2), "A pattern's confidence is a number from 0 to 1."),
    (put("assertion:e", "kx:onlyFor", "concept:a"), "An assertion belongs to tasks of the graph."),
    (put("assertion:e", "kx:about", "cuda:p"), "An assertion shows mistakes of concepts of the graph."),
    (drop("assertion:e", "kx:basis"), "An assertion says what the trust in it rests on."),
    (put("assertion:e", "kx:confidence", 2), "An assertion's confidence is a number from 0 to 1."),
]

QUERY_FAULTS: list[tuple[Fault, str]] = [
    (put("cuda:p", "kx:realizes", "concept:a"), "concept-without-mapping"),
    (put("concept:a", "kx:enables", "concept:gone"), "dangling-link"),
    (put("cuda:r", "kx:token", "p"), "duplicate-token"),
    (put("concept:b", "kx:requires", "concept:a"), "requires-cycle"),
    (put("concept:b", "kx:conflictsWith", "concept:a"), "one-sided-conflict"),
    (put("map:m", "kx:status", "confirmed"), "claim-not-corrected"),
    (put("map:c", "kx:from", "cuda:r"), "claim-not-corrected"),
    (put("map:m", "kx:to", "cuda:r"), "mapping-direction"),
    (put("map:m", "kx:from", "metal:q"), "mapping-direction"),
    (drop("map:m", "kx:to"), "match-without-target"),
    (put("quantity:x", "kx:unit", "GHz"), "quantity-unit"),
    (put("quantity:x", "kx:quantity", "unheard-of"), "quantity-unit"),
    (put("limit:l", "kx:unit", "B"), "quantity-unit"),
    (both(add("cuda:p", "kx:tokenFamily", "cub*"), add("cuda:r", "kx:tokenFamily", "cub*")), "duplicate-family"),
    (add("limit:l", "kx:comparison", ">="), "functional-property"),
    (lambda graph: graph.add((iri("source:lonely"), RDF.type, iri("kx:Source"))), "unused-source"),
]


@pytest.fixture
def valid() -> Graph:
    return valid_graph()


def test_a_valid_graph_passes(valid):
    assert check_shapes(valid) == []
    assert check_queries(valid) == []


@pytest.mark.parametrize(("fault", "message"), FAULTS, ids=[message for _, message in FAULTS])
def test_a_planted_fault_is_told_in_the_rules_words(valid, fault, message):
    fault(valid)
    assert message in [violation.message for violation in check_shapes(valid)]


def test_every_rule_has_a_planted_fault():
    shapes = parse_turtle(package_files("shapes", ".ttl"))
    messages = {str(text) for text in shapes.objects(None, URIRef("http://www.w3.org/ns/shacl#message"))}
    planted = {message for _, _, message, _ in PLANTED.values() if "Here: " not in message}
    assert messages == planted | {message for _, message in FAULTS}


def test_every_property_rule_carries_a_message():
    shapes = parse_turtle(package_files("shapes", ".ttl"))
    sh = "http://www.w3.org/ns/shacl#"
    for rule in shapes.objects(None, URIRef(sh + "property")):
        assert shapes.value(rule, URIRef(sh + "message")), shapes.value(rule, URIRef(sh + "path"))


@pytest.mark.parametrize(("fault", "query"), QUERY_FAULTS, ids=[f"{n}-{q}" for n, (_, q) in enumerate(QUERY_FAULTS)])
def test_each_query_finds_its_fault(valid, fault, query):
    fault(valid)
    found = [violation for violation in check_queries(valid) if violation.check == query]
    assert found
    assert all(violation.node and "Here: " in violation.message for violation in found)


def test_every_query_has_a_planted_fault():
    assert {path.stem for path in package_files("queries", ".rq")} == {query for _, query in QUERY_FAULTS}
