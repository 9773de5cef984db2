"""The whole graph in standard forms, for other tools to load."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from kgraph.names import PREFIXES, RDF_TYPE, shortened, skos

if TYPE_CHECKING:
    from rdflib import Dataset, Graph

FORMS = ("trig", "turtle", "nquads", "json-ld", "graphml")
"""``turtle`` is the union of all named graphs without their names; the others keep the names."""

_GRAPHML = "http://graphml.graphdrawing.org/xmlns"


def serialize(dataset: Dataset, form: str) -> str:
    """Text of all named graphs.

    Args:
        form: one of ``FORMS``.
    """
    if form == "graphml":
        return _graphml(dataset)
    with warnings.catch_warnings():
        # rdflib 7's own serializers call a method of its datasets that it has deprecated.
        warnings.simplefilter("ignore", DeprecationWarning)
        if form == "turtle":
            return _union(dataset).serialize(format="turtle")
        return dataset.serialize(format=form)


def _union(dataset: Dataset) -> Graph:
    from rdflib import Graph

    union = Graph()
    for prefix, namespace in PREFIXES.items():
        union.bind(prefix, namespace)
    for subject, predicate, target, _ in dataset.quads():
        union.add((subject, predicate, target))
    return union


def _graphml(dataset: Dataset) -> str:
    """Nodes are IRIs and blank nodes, edges the triples between them; literals are data of their node.

    Several values of one property stand in one data element, a line each.
    """
    from rdflib import Literal

    texts: dict[str, dict[str, list[str]]] = {}
    edges: list[tuple[str, str, str, str]] = []
    for subject, predicate, target, graph in sorted(dataset.quads(), key=lambda quad: tuple(map(str, quad))):
        properties = texts.setdefault(str(subject), {})
        if isinstance(target, Literal):
            properties.setdefault(shortened(predicate), []).append(str(target))
        else:
            texts.setdefault(str(target), {})
            edges.append((str(subject), str(target), shortened(predicate), str(graph)))
    keys = sorted({key for properties in texts.values() for key in properties})
    root = ElementTree.Element("graphml", xmlns=_GRAPHML)
    for kind, names in (("node", ("label", "class", *keys)), ("edge", ("predicate", "graph"))):
        for name in names:
            attributes = {"id": f"{kind}:{name}", "for": kind, "attr.name": name, "attr.type": "string"}
            ElementTree.SubElement(root, "key", attributes)
    body = ElementTree.SubElement(root, "graph", id="kx", edgedefault="directed")
    classes = {start: end for start, end, name, _ in edges if name == shortened(RDF_TYPE)}
    for iri, properties in texts.items():
        data = {name: "\n".join(values) for name, values in properties.items()}
        label = data.get(shortened(skos("prefLabel")), shortened(iri))
        _element(body, "node", {"id": iri}, {"label": label, "class": shortened(classes.get(iri, "")), **data})
    for number, (start, end, name, graph_name) in enumerate(edges):
        ends = {"id": f"e{number}", "source": start, "target": end}
        _element(body, "edge", ends, {"predicate": name, "graph": graph_name})
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode")


def _element(parent: ElementTree.Element, kind: str, attributes: dict[str, str], data: dict[str, str]) -> None:
    element = ElementTree.SubElement(parent, kind, attributes)
    for name, text in data.items():
        if text:
            ElementTree.SubElement(element, "data", key=f"{kind}:{name}").text = text
