"""From triples to the typed values of ``kgraph.model``.

Each function raises DataMalformed, naming node and property, when a node lacks what its class must have.
"""

from __future__ import annotations

from typing import cast, get_args

from kgraph.model import (
    Assertion,
    ChipProfile,
    Comparison,
    Concept,
    Constraint,
    Impacts,
    KernelTask,
    Mapping,
    Pattern,
    Primitive,
    Quantity,
    Relation,
    Source,
    Status,
)
from kgraph.names import DCT, PREFIXES, RDF_TYPE, schema, skos
from kgraph.triples import TripleIndex
from kx.errors import DataMalformed

RELATIONS: dict[str, Relation] = {
    skos("exactMatch"): "exact",
    skos("closeMatch"): "close",
    skos("broadMatch"): "broader",
    skos("narrowMatch"): "narrower",
    schema("noMatch"): "none",
}
"""SKOS's words for the strength of a mapping, and ours for the absence of one."""


class GraphReader:
    """Reads typed values out of one index, each node once."""

    def __init__(self, index: TripleIndex) -> None:
        self.index = index
        self._sources: dict[str, Source] = {}
        self._constraints: dict[str, Constraint] = {}
        self._primitives: dict[str, Primitive] = {}
        self._mappings: dict[str, Mapping] = {}

    def concept(self, iri: str) -> Concept:
        """One optimization concept."""
        index = self.index
        return Concept(
            slug=index.text(iri, skos("notation")),
            iri=iri,
            label=index.text(iri, skos("prefLabel")),
            family=index.text(iri, schema("family")),
            definition=index.text(iri, skos("definition")),
            kernel_classes=self._slugs(iri, "serves"),
            bottlenecks=index.texts(iri, schema("addresses")),
            requires=self._slugs(iri, "requires"),
            conflicts=self._slugs(iri, "conflictsWith"),
            enables=self._slugs(iri, "enables"),
            difficulty=int(index.number(iri, schema("difficulty"))),
            impacts=Impacts(
                memory_bandwidth=int(index.number(iri, schema("memoryBandwidthImpact"))),
                register_pressure=int(index.number(iri, schema("registerPressureImpact"))),
                compute_hw_fit=int(index.number(iri, schema("computeFitImpact"))),
            ),
        )

    def source(self, iri: str) -> Source:
        """One source: its title, with its address when it has one."""
        if iri not in self._sources:
            title = self.index.text(iri, DCT + "title")
            addresses = self.index.nodes(iri, schema("address"))
            text = f"{title}, {addresses[0]}" if addresses else title
            self._sources[iri] = Source(iri=iri, title=text)
        return self._sources[iri]

    def sources(self, iri: str) -> tuple[Source, ...]:
        """The sources of a fact."""
        return tuple(self.source(node) for node in self.index.nodes(iri, DCT + "source"))

    def constraint(self, iri: str) -> Constraint:
        """One limit that code can check."""
        if iri not in self._constraints:
            index = self.index
            self._constraints[iri] = Constraint(
                iri=iri,
                label=index.text(iri, skos("prefLabel")),
                quantity=index.text(iri, schema("quantity")),
                comparison=_comparison(iri, index.text(iri, schema("comparison"))),
                value=index.number(iri, schema("value")),
                unit=index.text(iri, schema("unit")),
                scope=slug_of(index.node(iri, schema("scope"))),
                sources=self.sources(iri),
                concepts=self._slugs(iri, "about"),
                basis=index.text(iri, schema("basis"), ""),
            )
        return self._constraints[iri]

    def primitive(self, iri: str) -> Primitive:
        """One primitive; its source tokens first, then the names by which people ask for it."""
        if iri not in self._primitives:
            index = self.index
            self._primitives[iri] = Primitive(
                iri=iri,
                label=index.text(iri, skos("prefLabel")),
                platform=slug_of(index.node(iri, schema("platform"))),
                tokens=index.texts(iri, schema("token")) + index.texts(iri, skos("altLabel")),
                concepts=self._slugs(iri, "realizes"),
                definition=index.text(iri, skos("definition"), ""),
                families=self._slugs(iri, "appliesOn"),
            )
        return self._primitives[iri]

    def mapping(self, iri: str) -> Mapping:
        """What a primitive becomes on another platform."""
        if iri not in self._mappings:
            index = self.index
            targets = index.nodes(iri, schema("to"))
            relation = index.node(iri, schema("relation"))
            if relation not in RELATIONS:
                known = ", ".join(RELATIONS)
                raise DataMalformed(f"{iri}: {relation} is not a mapping relation", f"use one of {known}")
            corrected_by = index.nodes(iri, schema("correctedBy"))
            self._mappings[iri] = Mapping(
                iri=iri,
                origin=self.primitive(index.node(iri, schema("from"))),
                target=self.primitive(targets[0]) if targets else None,
                relation=RELATIONS[relation],
                advice=index.text(iri, schema("advice"), ""),
                rationale=index.text(iri, schema("rationale")),
                pitfall=index.text(iri, schema("pitfall"), ""),
                constraints=tuple(self.constraint(node) for node in index.nodes(iri, schema("constrainedBy"))),
                sources=self.sources(iri),
                confidence=index.number(iri, schema("confidence")),
                status=_status(iri, index.text(iri, schema("status"))),
                corrected_by=corrected_by[0] if corrected_by else "",
                beside=self._slugs(iri, "about"),
                kernel_classes=self._slugs(iri, "appliesTo"),
            )
        return self._mappings[iri]

    def chip(self, iri: str) -> ChipProfile:
        """One GPU with its quantities."""
        index = self.index
        quantities = [self.quantity(node) for node in index.nodes(iri, schema("hasQuantity"))]
        return ChipProfile(
            slug=slug_of(iri),
            iri=iri,
            label=index.text(iri, skos("prefLabel")),
            family=slug_of(index.node(iri, schema("gpuFamily"))),
            quantities={quantity.name: quantity for quantity in quantities},
        )

    def quantity(self, iri: str) -> Quantity:
        """One figure of a chip."""
        sources = self.sources(iri)
        if not sources:
            raise DataMalformed(f"{iri} has no source", "add dct:source")
        return Quantity(
            name=self.index.text(iri, schema("quantity")),
            value=self.index.number(iri, schema("value")),
            unit=self.index.text(iri, schema("unit")),
            source=sources[0],
            confidence=self.index.text(iri, schema("basis")),
        )

    def task(self, iri: str) -> KernelTask:
        """A kernel that people ask for by name."""
        return KernelTask(
            slug=self.index.text(iri, skos("notation")),
            iri=iri,
            label=self.index.text(iri, skos("prefLabel")),
            definition=self.index.text(iri, skos("definition")),
            kernel_class=slug_of(self.index.node(iri, schema("ofClass"))),
            concepts=self._slugs(iri, "uses"),
        )

    def pattern(self, iri: str) -> Pattern:
        """How experts do it."""
        index = self.index
        return Pattern(
            iri=iri,
            label=index.text(iri, skos("prefLabel")),
            problem=index.text(iri, schema("problem"), ""),
            text=index.text(iri, skos("definition")),
            sketch=index.text(iri, schema("sketch"), ""),
            concepts=self._slugs(iri, "about"),
            kernel_classes=self._slugs(iri, "appliesTo"),
            tasks=self._slugs(iri, "onlyFor"),
            families=self._slugs(iri, "appliesOn"),
            requirement=index.text(iri, schema("requirement"), ""),
            constraints=tuple(self.constraint(node) for node in index.nodes(iri, schema("constrainedBy"))),
            conflicts=tuple(index.nodes(iri, schema("conflictsWith"))),
            instead_of=self._slugs(iri, "insteadOf"),
            shown_by=tuple(index.nodes(iri, schema("shownBy"))),
            sources=self.sources(iri),
            basis=index.text(iri, schema("basis"), ""),
            confidence=self._confidence(iri),
        )

    def assertion(self, iri: str) -> Assertion:
        """A property that a correct kernel keeps."""
        index = self.index
        return Assertion(
            iri=iri,
            label=index.text(iri, skos("prefLabel")),
            text=index.text(iri, skos("definition")),
            failure=index.text(iri, schema("failure"), ""),
            strictness=index.text(iri, schema("strictness"), ""),
            kernel_classes=self._slugs(iri, "holdsFor"),
            tasks=self._slugs(iri, "onlyFor"),
            concepts=self._slugs(iri, "about"),
            check=index.text(iri, schema("check")),
            checked_by=index.texts(iri, schema("checkedBy")),
            sources=self.sources(iri),
            basis=index.text(iri, schema("basis"), ""),
            confidence=self._confidence(iri),
        )

    def _confidence(self, iri: str) -> float:
        stated = self.index.values(iri, schema("confidence"))
        return self.index.number(iri, schema("confidence")) if stated else 0.0

    def _slugs(self, iri: str, name: str) -> tuple[str, ...]:
        return tuple(slug_of(node) for node in self.index.nodes(iri, schema(name)))


def slug_of(iri: str) -> str:
    """The last part of one of our IRIs (``urn:kx:concept:exp2-trick`` gives ``exp2-trick``)."""
    return iri.rsplit(":", 1)[1]


def class_of(index: TripleIndex, iri: str) -> str:
    """Name of a node's class in our schema, or empty."""
    for node in index.nodes(iri, RDF_TYPE):
        if node.startswith(PREFIXES["kx"]):
            return node.removeprefix(PREFIXES["kx"])
    return ""


def _comparison(iri: str, text: str) -> Comparison:
    if text not in get_args(Comparison):
        raise DataMalformed(f"{iri}: {text!r} is not a comparison", f"use one of {', '.join(get_args(Comparison))}")
    return cast(Comparison, text)


def _status(iri: str, text: str) -> Status:
    if text not in get_args(Status):
        raise DataMalformed(f"{iri}: {text!r} is not a status", f"use one of {', '.join(get_args(Status))}")
    return cast(Status, text)
