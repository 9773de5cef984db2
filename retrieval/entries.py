"""Index entries: how each kind of graph node reads as a searchable text."""

from __future__ import annotations

from collections.abc import Iterable

from kgraph.facts import Fact, facts
from kgraph.graph import KnowledgeGraph
from kgraph.model import Assertion, ChipProfile, Concept, Constraint, Evidence, Mapping, Pattern, Primitive, Quantity
from kgraph.names import file_iri, skos
from kgraph.records import SourceRecord, read_source
from kgraph.triples import TripleIndex
from retrieval.index import CURATED, Index
from retrieval.model import Entry

_CYCLE_COUNTS = ("issue-cycles", "latency-cycles")
"""Figures that only an estimate needs: fifty for each chip, which would drown those that people ask for."""


def synchronize(graph: KnowledgeGraph, index: Index) -> bool:
    """Make the index hold what the graph holds; only what differs is written. Vectors are made later.

    Args:
        graph: curated knowledge and ingested sources.
        index: changed to match.

    Returns:
        Whether anything changed.
    """
    changed = index.sync_curated(curated_entries(graph))
    known = index.sources()
    current = {file_iri(file): ":".join(version) for file, version in graph.sources().items()}
    for source in known.keys() - current.keys():
        index.remove_source(source)
        changed = True
    with graph.store.batch():
        for source in sorted(source for source in current if known.get(source) != current[source]):
            record = read_source(TripleIndex(graph.store.read(source)), source)
            changed |= index.replace_source(source, source_entries(graph, record), current[source])
    return changed


def curated_entries(graph: KnowledgeGraph) -> list[Entry]:
    """Entries of the curated knowledge.

    Concepts, primitives, mappings, constraints, facts, patterns, assertions and chips; a chip's figures are told by
    its entry.
    """
    index = graph.reader.index
    shown_by: dict[str, list[str]] = {}
    for primitive in graph.primitives("cuda"):
        for slug in primitive.concepts:
            shown_by.setdefault(slug, []).append(primitive.label)
    return [
        *(
            _concept_entry(concept, index.texts(concept.iri, skos("altLabel")), shown_by.get(concept.slug, []))
            for concept in graph.concepts()
        ),
        *map(_primitive_entry, graph.primitives()),
        *map(_mapping_entry, graph.mappings()),
        *map(_constraint_entry, graph.constraints()),
        *map(_fact_entry, facts(graph)),
        *map(_pattern_entry, graph.patterns()),
        *map(_assertion_entry, graph.assertions()),
        *map(_chip_entry, graph.chips()),
    ]


def source_entries(graph: KnowledgeGraph, record: SourceRecord) -> list[Entry]:
    """Entries of an ingested file: its kernels, and the concepts seen in it.

    Args:
        graph: names the concepts and primitives.
        record: what was read from the file; ``record.iri`` becomes the entries' source.

    Raises:
        UnknownName: the record names a concept that the graph lacks.
    """
    labels = {primitive.iri: primitive.label for primitive in graph.primitives()}
    used = [labels[iri] for iri, _ in record.primitives if iri in labels]
    kernels = [
        _kernel_entry(record, number, [e for e in record.evidence if e.kernel == name], used)
        for number, (name, _) in enumerate(record.kernels)
    ]
    seen = [
        _evidence_entry(record, number, evidence, graph.concept(evidence.concept))
        for number, evidence in enumerate(record.evidence)
    ]
    return [*kernels, *seen]


def _concept_entry(concept: Concept, names: tuple[str, ...], shown_by: list[str]) -> Entry:
    text = _sentences(concept.definition, _listing("Shown by", shown_by))
    title = f"{concept.label} ({concept.slug})"
    return Entry(concept.iri, "concept", title, text, CURATED, (concept.slug,), names)


def _primitive_entry(primitive: Primitive) -> Entry:
    text = _sentences(primitive.definition)
    title = f"{primitive.label} ({primitive.platform})"
    return Entry(primitive.iri, "primitive", title, text, CURATED, primitive.concepts, primitive.tokens)


def _mapping_entry(mapping: Mapping) -> Entry:
    target = mapping.target.label if mapping.target else "no equivalent"
    title = f"{mapping.origin.label} → {target} ({mapping.relation})"
    if mapping.status != "claimed":
        title += f", {mapping.status}"
    text = _sentences(
        mapping.advice,
        mapping.rationale,
        f"Pitfall: {mapping.pitfall}" if mapping.pitfall else "",
        mapping.origin.definition,
    )
    return Entry(mapping.iri, "mapping", title, text, CURATED, mapping.origin.concepts, mapping.origin.tokens)


def _constraint_entry(constraint: Constraint) -> Entry:
    text = _sentences(
        f"{constraint.quantity} {constraint.comparison} {constraint.value:g} {constraint.unit} on {constraint.scope}"
    )
    return Entry(constraint.iri, "constraint", constraint.label, text, CURATED, names=(_words(constraint.quantity),))


def _fact_entry(fact: Fact) -> Entry:
    text = _sentences(fact.advice, f"Holds for {fact.scope}")
    return Entry(fact.iri, "fact", fact.statement, text, CURATED)


def _pattern_entry(pattern: Pattern) -> Entry:
    text = _sentences(pattern.problem, pattern.text, pattern.requirement)
    return Entry(pattern.iri, "pattern", pattern.label, text, CURATED, pattern.concepts)


def _assertion_entry(assertion: Assertion) -> Entry:
    text = _sentences(
        assertion.text,
        f"Broken by: {assertion.failure}" if assertion.failure else "",
        _listing("Kept by", assertion.tasks or assertion.kernel_classes),
    )
    return Entry(assertion.iri, "assertion", assertion.label, text, CURATED, assertion.concepts)


def _chip_entry(chip: ChipProfile) -> Entry:
    told = [figure for figure in chip.quantities.values() if not figure.name.startswith(_CYCLE_COUNTS)]
    text = _sentences(_listing("GPU figures", map(_figure, told)))
    return Entry(chip.iri, "chip", chip.label, text, CURATED, names=(_words(chip.slug), chip.family))


def _figure(quantity: Quantity) -> str:
    for unit, size in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if quantity.unit == "B" and quantity.value >= size:
            return f"{_words(quantity.name)} {quantity.value / size:g} {unit}"
    return f"{_words(quantity.name)} {quantity.value:g} {quantity.unit}"


def _words(slug: str) -> str:
    return slug.replace("-", " ")


def _kernel_entry(record: SourceRecord, number: int, evidence: list[Evidence], primitives: list[str]) -> Entry:
    name, line = record.kernels[number]
    concepts = tuple(dict.fromkeys(item.concept for item in evidence))
    text = _sentences(
        f"CUDA kernel in {record.file}, line {line}",
        _listing("Uses", concepts),
        _listing("Primitives of the file", primitives),
    )
    iri = f"{record.iri}:kernel:{number}"
    return Entry(iri, "kernel", f"{name} ({record.file}:{line})", text, record.iri, concepts)


def _evidence_entry(record: SourceRecord, number: int, evidence: Evidence, concept: Concept) -> Entry:
    place = f"{evidence.file}:{evidence.first_line}-{evidence.last_line}"
    where = f"kernel {evidence.kernel}" if evidence.kernel else "file scope"
    text = _sentences(f"{concept.slug} seen in {where}", evidence.why)
    iri = f"{record.iri}:evidence:{number}"
    return Entry(iri, "evidence", f"{concept.label} in {place}", text, record.iri, (evidence.concept,))


def _sentences(*parts: str) -> str:
    cleaned = [part.strip() for part in parts if part.strip()]
    return " ".join(part if part.endswith((".", "!", "?")) else f"{part}." for part in cleaned)


def _listing(heading: str, items: Iterable[str]) -> str:
    joined = ", ".join(items)
    return f"{heading}: {joined}" if joined else ""
