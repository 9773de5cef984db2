"""Names of the schema: IRIs under ``urn:kx:`` and the few terms of SKOS, PROV-O and Dublin Core in use."""

from __future__ import annotations

import hashlib

SCHEMA = "urn:kx:schema#"
RDF_TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
SKOS = "http://www.w3.org/2004/02/skos/core#"
PROV = "http://www.w3.org/ns/prov#"
DCT = "http://purl.org/dc/terms/"
XSD = "http://www.w3.org/2001/XMLSchema#"

CURATED = "urn:kx:graph:curated"
OBSERVATIONS = "urn:kx:graph:observations:"

PREFIXES = {
    "kx": SCHEMA,
    "skos": SKOS,
    "prov": PROV,
    "dct": DCT,
    "xsd": XSD,
    "rdf": "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
    "rdfs": "http://www.w3.org/2000/01/rdf-schema#",
    "concept": "urn:kx:concept:",
    "class": "urn:kx:kernel-class:",
    "task": "urn:kx:task:",
    "platform": "urn:kx:platform:",
    "gpu": "urn:kx:gpu-family:",
    "chip": "urn:kx:chip:",
    "quantity": "urn:kx:quantity:",
    "limit": "urn:kx:constraint:",
    "aspect": "urn:kx:aspect:",
    "feature": "urn:kx:feature:",
    "fact": "urn:kx:fact:",
    "cuda": "urn:kx:primitive:cuda:",
    "metal": "urn:kx:primitive:metal:",
    "mlx": "urn:kx:primitive:mlx:",
    "map": "urn:kx:mapping:",
    "pattern": "urn:kx:pattern:",
    "assertion": "urn:kx:assertion:",
    "source": "urn:kx:source:",
}
"""Prefixes of the curated files; a query may use them without declaring them."""


def shortened(iri: object) -> str:
    """An IRI by its prefix (``concept:exp2-trick``); any other text as it is."""
    text = str(iri)
    for prefix, namespace in PREFIXES.items():
        if text.startswith(namespace) and len(text) > len(namespace):
            return f"{prefix}:{text[len(namespace) :]}"
    return text


def schema(name: str) -> str:
    """IRI of a class or property of the schema."""
    return SCHEMA + name


def skos(name: str) -> str:
    """IRI of a SKOS term."""
    return SKOS + name


def prov(name: str) -> str:
    """IRI of a PROV-O term."""
    return PROV + name


def concept_iri(slug: str) -> str:
    """IRI of an optimization concept."""
    return PREFIXES["concept"] + slug


def file_iri(file: str) -> str:
    """IRI of an ingested source file, which also names its graph; depends on the path only."""
    return "urn:kx:file:" + hashlib.sha256(file.encode("utf-8")).hexdigest()[:32]
