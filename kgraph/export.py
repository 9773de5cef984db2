"""The whole graph in standard forms, for other tools to load."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from kgraph.load import plain_value
from kgraph.names import RDF_TYPE, shortened, skos
from kgraph.triples import Triple
from kgraph.turtle import to_turtle

if TYPE_CHECKING:
    from rdflib import Dataset

FORMS = ("trig", "turtle", "nquads", "json-ld", "graphml")
"""``turtle`` is the union of all named graphs without their names; the others keep the names."""

_GRAPHML = "http://graphml.graphdrawing.org/xmlns"


def serialize(dataset: Dataset, form: str) -> str:
    """Text of all named graphs; numbers come back as they were.

    Args:
        form: one of ``FORMS``.
    """
    if form == "graphml":
        return _graphml(dataset)
    if form in ("turtle", "trig"):
        # rdflib prints a double with seven digits in these two forms
        return _turtle(dataset) if form == "turtle" else _trig(dataset)
    with warnings.catch_warnings():
        # rdflib 7's own serializers call a method of its datasets that it has deprecated.
        warnings.simplefilter("ignore", DeprecationWarning)
        return dataset.serialize(format=form)


def _turtle(dataset: Dataset) -> str:
    return to_turtle((str(s), str(p), plain_value(o)) for s, p, o, _ in dataset.quads())


def _trig(dataset: Dataset) -> str:
    graphs: dict[str, list[Triple]] = {}
    for subject, predicate, target, graph in dataset.quads():
        graphs.setdefault(str(graph), []).append((str(subject), str(predicate), plain_value(target)))
    prefixes: dict[str, None] = {}
    blocks = []
    for name in sorted(graphs):
        lines = to_turtle(graphs[name]).splitlines()
        prefixes.update(dict.fromkeys(line for line in lines if line.startswith("@prefix ")))
        body = "\n".join(line for line in lines if not line.startswith("@prefix "))
        blocks.append(f"<{name}> {{\n{body.strip()}\n}}\n")
    return "\n".join(prefixes) + "\n\n" + "\n".join(blocks)


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
