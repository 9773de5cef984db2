"""A small valid graph that has a node of every class, and ways to plant a fault in it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from rdflib import Graph, Literal, URIRef

from kgraph.load import package_files, parse_turtle
from kgraph.names import PREFIXES

VALID = (
    "".join(f"@prefix {prefix}: <{iri}> .\n" for prefix, iri in PREFIXES.items())
    + """
class:scan a kx:KernelClass ; skos:notation "scan" ; skos:definition "Prefix operations." .
concept:a a kx:Concept ; skos:notation "a" ; skos:prefLabel "A" ; skos:definition "Does a." ; kx:family "memory" ;
    kx:serves class:scan ; kx:addresses "latency" ; kx:difficulty 1 ; kx:memoryBandwidthImpact 1 ;
    kx:registerPressureImpact 5 ; kx:computeFitImpact 10 ; kx:requires concept:b ; kx:enables concept:b .
concept:b a kx:Concept ; skos:notation "b" ; skos:prefLabel "B" ; skos:definition "Does b." ; kx:family "compute" ;
    kx:serves class:scan ; kx:addresses "compute" ; kx:difficulty 5 ; kx:memoryBandwidthImpact 0 ;
    kx:registerPressureImpact 5 ; kx:computeFitImpact 0 .
cuda:p a kx:Primitive ; skos:prefLabel "p" ; kx:platform platform:cuda ; kx:token "p" ;
    kx:realizes concept:a, concept:b .
cuda:r a kx:Primitive ; skos:prefLabel "r" ; kx:platform platform:cuda ; kx:token "r" .
metal:q a kx:Primitive ; skos:prefLabel "q" ; kx:platform platform:metal ; skos:altLabel "q" .
source:s a kx:Source ; dct:title "A document" ; kx:address <https://example.org/> .
limit:l a kx:Constraint ; skos:prefLabel "At most 1" ; kx:quantity "buffer-arguments" ;
    kx:comparison "<=" ; kx:value 1 ; kx:unit "entries" ; kx:scope platform:metal ; dct:source source:s ;
    kx:basis "read" .
fact:f a kx:Fact ; skos:prefLabel "So it is." ; kx:scope aspect:h ; dct:source source:s ; kx:basis "read" ;
    kx:confidence 0.5 .
feature:g a kx:Feature ; skos:prefLabel "G" ; kx:covers metal:q .
aspect:h a kx:Aspect ; skos:prefLabel "H" ; kx:platform platform:metal .
<urn:kx:quantity-kind:buffer-arguments> a kx:QuantityKind ; skos:notation "buffer-arguments" ;
    skos:definition "Buffers." ; kx:unit "entries" .
map:m a kx:Mapping ; kx:from cuda:p ; kx:to metal:q ; kx:relation skos:exactMatch ; kx:rationale "Same." ;
    kx:advice "Write q." ; kx:pitfall "None known." ; dct:source source:s ; kx:confidence 0.5 ; kx:basis "read" ;
    kx:status "corrected" ; kx:constrainedBy limit:l .
map:c a kx:Mapping ; kx:from cuda:p ; kx:to metal:q ; kx:relation skos:closeMatch ; kx:rationale "They say." ;
    kx:advice "Write q." ; dct:source source:s ; kx:confidence 0.1 ; kx:basis "said" ; kx:status "claimed" ;
    kx:correctedBy map:m .
<urn:kx:quantity-kind:gpu-cores> a kx:QuantityKind ; skos:notation "gpu-cores" ; skos:definition "Cores." ;
    kx:unit "cores" .
quantity:x a kx:Quantity ; kx:quantity "gpu-cores" ; kx:value 8 ; kx:unit "cores" ; kx:basis "read" ;
    dct:source source:s .
chip:m1 a kx:Chip ; skos:prefLabel "M1" ; kx:platform platform:metal ; kx:gpuFamily gpu:apple7 ;
    kx:hasQuantity quantity:x .
task:k a kx:Task ; skos:notation "k" ; skos:prefLabel "K" ; skos:definition "Computes k." ; kx:ofClass class:scan ;
    kx:uses concept:a .
pattern:t a kx:Pattern ; skos:prefLabel "T" ; skos:definition "Do t." ; kx:sketch "t();" ; kx:about concept:a ;
    kx:problem "It is slow." ; kx:appliesTo class:scan ; kx:onlyFor task:k ; kx:appliesOn gpu:apple7 ;
    kx:constrainedBy limit:l ; kx:insteadOf concept:b ; kx:shownBy assertion:e ; kx:basis "read" ; kx:confidence 0.5 ;
    dct:source source:s .
assertion:e a kx:Assertion ; skos:prefLabel "E" ; skos:definition "e holds." ; kx:holdsFor class:scan ; kx:check "e" ;
    kx:failure "e fails." ; kx:strictness "exact" ; kx:checkedBy "gate:check_case" ; kx:onlyFor task:k ;
    kx:about concept:a ; kx:basis "read" ; kx:confidence 0.5 ; dct:source source:s .
<urn:kx:file:f> a kx:SourceFile ; kx:path "f.cu" ; kx:root "/b" ; kx:sha256 "%s" .
<urn:kx:file:f:reading> a prov:Activity .
<urn:kx:file:f:evidence:0> a kx:Evidence ; kx:concept concept:a ; kx:inFile <urn:kx:file:f> ; kx:firstLine 2 ;
    kx:lastLine 3 ; kx:detector "d@1" ; kx:confidence 0.5 ; prov:wasGeneratedBy <urn:kx:file:f:reading> .
<urn:kx:file:f:use:0> a kx:PrimitiveUse ; kx:primitive cuda:p ; kx:inFile <urn:kx:file:f> ; kx:line 2 .
<urn:kx:observation:o> a kx:Observation ; kx:concept concept:a ; kx:run "r" ; kx:task "t" ; kx:outcome "Scored" ;
    kx:timing "estimated" ; kx:ratio 1.5 .
"""
    % ("0" * 64)
)


def iri(name: str) -> URIRef:
    prefix, _, local = name.partition(":")
    return URIRef(PREFIXES[prefix] + local if prefix in PREFIXES else name)


Fault = Callable[[Graph], object]


def drop(node: str, path: str) -> Fault:
    return lambda graph: graph.remove((iri(node), iri(path), None))


def put(node: str, path: str, value: object) -> Fault:
    """Replace the values of a property."""
    term = iri(value) if isinstance(value, str) and value.partition(":")[0] in {*PREFIXES, "urn"} else Literal(value)
    return lambda graph: graph.set((iri(node), iri(path), term))


def add(node: str, path: str, value: str) -> Fault:
    """Give a property one more value."""
    return lambda graph: graph.add((iri(node), iri(path), Literal(value)))


@cache
def _parsed() -> Graph:
    return parse_turtle(package_files("ontology", ".ttl")).parse(data=VALID, format="turtle")


def valid_graph() -> Graph:
    """A new copy of the graph, with the schema."""
    copy = Graph()
    for triple in _parsed():
        copy.add(triple)
    return copy
