"""What ingest and the search write into the graph, as records and as triples."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from dataclasses import dataclass

from kgraph.model import Evidence, Observation
from kgraph.names import PREFIXES, RDF_TYPE, concept_iri, prov, schema, skos
from kgraph.triples import Node, Triple, TripleIndex


@dataclass(frozen=True)
class SourceRecord:
    """What is known of one ingested file; replaces everything known of it before.

    Attributes:
        iri: identity of the file and name of its graph; ``kgraph.names.file_iri(file)``.
        file: path as ingested, with forward slashes.
        sha256: of the file's bytes.
        detector_version: of the whole set of detectors; a file read by an older one is stale.
        kernels: (name, 1-based line) of each kernel.
        evidence: concepts seen in the file.
        primitives: (IRI of the primitive, its lines in ascending order without repeats).
        root: absolute folder that a relative ``file`` counts from; empty when ``file`` is absolute.
    """

    iri: str
    file: str
    sha256: str
    detector_version: str
    kernels: tuple[tuple[str, int], ...] = ()
    evidence: tuple[Evidence, ...] = ()
    primitives: tuple[tuple[str, tuple[int, ...]], ...] = ()
    root: str = ""


def source_triples(record: SourceRecord) -> list[Triple]:
    """The graph of one ingested file: file, reading activity, kernels, evidence, uses of primitives."""
    reading = f"{record.iri}:reading"
    triples: list[Triple] = [
        (record.iri, RDF_TYPE, Node(schema("SourceFile"))),
        (record.iri, RDF_TYPE, Node(prov("Entity"))),
        (record.iri, schema("path"), record.file),
        (record.iri, schema("sha256"), record.sha256),
        (reading, RDF_TYPE, Node(prov("Activity"))),
        (reading, prov("used"), Node(record.iri)),
        (reading, schema("detectorVersion"), record.detector_version),
    ]
    if record.root:
        triples.append((record.iri, schema("root"), record.root))
    kernels = {}
    for number, (name, line) in enumerate(record.kernels):
        kernel = f"{record.iri}:kernel:{number}"
        kernels[name] = kernel
        triples += [
            (kernel, RDF_TYPE, Node(schema("Kernel"))),
            (kernel, skos("prefLabel"), name),
            (kernel, schema("inFile"), Node(record.iri)),
            (kernel, schema("firstLine"), line),
        ]
    for number, evidence in enumerate(record.evidence):
        triples += _evidence_triples(f"{record.iri}:evidence:{number}", evidence, record.iri, reading, kernels)
    for number, (primitive, lines) in enumerate(record.primitives):
        use = f"{record.iri}:use:{number}"
        triples += [
            (use, RDF_TYPE, Node(schema("PrimitiveUse"))),
            (use, schema("primitive"), Node(primitive)),
            (use, schema("inFile"), Node(record.iri)),
            *((use, schema("line"), line) for line in lines),
        ]
    return triples


def _evidence_triples(iri: str, evidence: Evidence, file: str, reading: str, kernels: dict[str, str]) -> list[Triple]:
    triples: list[Triple] = [
        (iri, RDF_TYPE, Node(schema("Evidence"))),
        (iri, schema("concept"), Node(concept_iri(evidence.concept))),
        (iri, schema("inFile"), Node(file)),
        (iri, schema("kernelName"), evidence.kernel),
        (iri, schema("firstLine"), evidence.first_line),
        (iri, schema("lastLine"), evidence.last_line),
        (iri, schema("detector"), evidence.detector),
        (iri, schema("confidence"), float(evidence.confidence)),
        (iri, schema("why"), evidence.why),
        (iri, prov("wasGeneratedBy"), Node(reading)),
    ]
    if evidence.kernel in kernels:
        triples.append((iri, schema("kernel"), Node(kernels[evidence.kernel])))
    return triples


def read_source(index: TripleIndex, iri: str) -> SourceRecord:
    """The record that ``source_triples`` wrote.

    Raises:
        DataMalformed: the graph lacks a part of it.
    """
    reading = f"{iri}:reading"
    kernels = sorted(_parts(index, iri, "Kernel"), key=_number)
    evidence = sorted(_parts(index, iri, "Evidence"), key=_number)
    uses = sorted(_parts(index, iri, "PrimitiveUse"), key=_number)
    return SourceRecord(
        iri=iri,
        file=index.text(iri, schema("path")),
        sha256=index.text(iri, schema("sha256")),
        detector_version=index.text(reading, schema("detectorVersion")),
        kernels=tuple(
            (index.text(kernel, skos("prefLabel")), int(index.number(kernel, schema("firstLine"))))
            for kernel in kernels
        ),
        evidence=tuple(read_evidence(index, node) for node in evidence),
        primitives=tuple(
            (
                str(index.node(use, schema("primitive"))),
                tuple(sorted(int(v) for v in index.values(use, schema("line")) if isinstance(v, int))),
            )
            for use in uses
        ),
        root=index.text(iri, schema("root"), ""),
    )


def _parts(index: TripleIndex, file: str, class_name: str) -> list[str]:
    members = set(index.instances(schema(class_name)))
    return [node for node in index.pointing(schema("inFile"), file) if node in members]


def _number(iri: str) -> int:
    return int(iri.rsplit(":", 1)[1])


def read_evidence(index: TripleIndex, iri: str) -> Evidence:
    """One evidence node.

    Raises:
        DataMalformed: the graph lacks a part of it.
    """
    file = index.node(iri, schema("inFile"))
    return Evidence(
        concept=index.node(iri, schema("concept")).removeprefix(PREFIXES["concept"]),
        kernel=index.text(iri, schema("kernelName"), ""),
        file=index.text(file, schema("path")),
        first_line=int(index.number(iri, schema("firstLine"))),
        last_line=int(index.number(iri, schema("lastLine"))),
        detector=index.text(iri, schema("detector")),
        confidence=index.number(iri, schema("confidence")),
        why=index.text(iri, schema("why"), ""),
    )


def observation_iri(observation: Observation) -> str:
    """Identity of an observation: the same concept tried at the same node is the same observation."""
    parts = (
        observation.run, observation.node, observation.concept, observation.task,
        observation.chip, observation.backend, observation.timing,
    )  # fmt: skip
    return "urn:kx:observation:" + hashlib.sha256("\x1f".join(parts).encode("utf-8")).hexdigest()[:32]


_OBSERVED_TEXTS = ("run", "node", "task", "chip", "backend", "timing", "outcome")
_OBSERVED_NUMBERS = {"ratio": "ratio", "ratio_low": "ratioLow", "ratio_high": "ratioHigh"}


def observation_triples(observation: Observation) -> list[Triple]:
    """The triples of one observation; texts are kept as literals, the concept as a link."""
    iri = observation_iri(observation)
    triples: list[Triple] = [
        (iri, RDF_TYPE, Node(schema("Observation"))),
        (iri, schema("concept"), Node(concept_iri(observation.concept))),
    ]
    triples += [(iri, schema(name), str(getattr(observation, name))) for name in _OBSERVED_TEXTS]
    triples += [(iri, schema(term), float(getattr(observation, n))) for n, term in _OBSERVED_NUMBERS.items()]
    triples += [(iri, schema("extra"), f"{key}={value}") for key, value in sorted(observation.extra.items())]
    return triples


def read_observation(index: TripleIndex, iri: str) -> Observation:
    """The observation that ``observation_triples`` wrote.

    Raises:
        DataMalformed: the graph lacks a part of it.
    """
    texts = {name: index.text(iri, schema(name), "") for name in _OBSERVED_TEXTS}
    extra: dict[str, str] = defaultdict(str)
    for pair in index.texts(iri, schema("extra")):
        key, _, value = pair.partition("=")
        extra[key] = value
    return Observation(
        run=texts["run"],
        node=texts["node"],
        concept=index.node(iri, schema("concept")).removeprefix(PREFIXES["concept"]),
        task=texts["task"],
        chip=texts["chip"],
        backend=texts["backend"],
        timing="measured" if texts["timing"] == "measured" else "estimated",
        outcome=texts["outcome"],
        ratio=index.number(iri, schema("ratio")),
        ratio_low=index.number(iri, schema("ratioLow")),
        ratio_high=index.number(iri, schema("ratioHigh")),
        extra=dict(extra),
    )
