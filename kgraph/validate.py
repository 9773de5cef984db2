"""Whether a graph is valid: the SHACL shapes, and the queries that say what shapes cannot."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from kgraph.load import curated_files, package_files, parse_turtle, read_text, to_graph
from kgraph.names import CURATED, PREFIXES, shortened
from kx.errors import DataMalformed

if TYPE_CHECKING:
    from rdflib import Graph

    from kgraph.graph import KnowledgeGraph

SHACL = "http://www.w3.org/ns/shacl#"
Severity = Literal["error", "warning"]
_DEFINITION = re.compile(r"^(?:<(?P<iri>urn:kx:[^>]+)>|(?P<prefix>[a-z]+):(?P<local>[\w.-]+))\s+a\s+kx:", re.MULTILINE)


@dataclass(frozen=True)
class Violation:
    """One thing that is wrong.

    Attributes:
        node: IRI of the node at fault.
        message: the rule it breaks, in words.
        check: name of the shape's property or of the query that found it.
        value: the offending value, or empty.
        severity: ``error`` makes the graph invalid; a ``warning`` is worth mending.
        solution: what to do about it.
        place: file and line where the node is described, or empty.
    """

    node: str
    message: str
    check: str
    value: str = ""
    severity: Severity = "error"
    solution: str = ""
    place: str = ""


def validate(graph: KnowledgeGraph) -> list[Violation]:
    """Everything that is wrong with a graph: curated knowledge, ingested sources and observations.

    Raises:
        DataMalformed: a Turtle file does not parse.
    """
    triples = [triple for name in graph.store.names() if name != CURATED for triple in graph.store.read(name)]
    data = to_graph([*graph.store.read(CURATED), *triples])
    files = curated_files()
    places = definitions(files)
    found = [*check_graph(data), *check_definitions(files)]
    return [replace(item, place=places.get(item.node, [""])[0]) for item in found]


def check_graph(data: Graph) -> list[Violation]:
    """Violations of an rdflib graph that holds curated knowledge, and perhaps more."""
    return [*check_shapes(data), *check_queries(data)]


def check_shapes(data: Graph) -> list[Violation]:
    """Violations of the SHACL shapes."""
    import pyshacl
    from rdflib import RDF, URIRef

    shapes = _shapes()
    _, report, _ = pyshacl.validate(data, shacl_graph=shapes, inference="none", meta_shacl=False)
    found = []
    for result in report.subjects(RDF.type, URIRef(SHACL + "ValidationResult")):
        value = report.value(result, URIRef(SHACL + "value"))
        path = report.value(result, URIRef(SHACL + "resultPath"))
        node = str(report.value(result, URIRef(SHACL + "focusNode")))
        component = str(report.value(result, URIRef(SHACL + "sourceConstraintComponent")))
        found.append(
            Violation(
                node=node,
                solution=_mending(node, component.removeprefix(SHACL), "" if path is None else shortened(path)),
                message=str(report.value(result, URIRef(SHACL + "resultMessage"))),
                check=str(path) if path is not None else "shape",
                value="" if value is None else str(value),
                severity=_severity(str(report.value(result, URIRef(SHACL + "resultSeverity")))),
            )
        )
    return sorted(found, key=lambda violation: (violation.node, violation.check, violation.message, violation.value))


@cache
def _shapes() -> Graph:
    return parse_turtle(package_files("shapes", ".ttl"))


def _severity(iri: str) -> Severity:
    return "error" if iri == SHACL + "Violation" else "warning"


_MENDING = {
    "MinCountConstraintComponent": "add {path} to {node}",
    "MaxCountConstraintComponent": "keep one {path} of {node}",
    "ClassConstraintComponent": "let {path} of {node} name a node of that class, or describe the one it names",
    "InConstraintComponent": "write one of the words listed as {path} of {node}",
    "LessThanOrEqualsConstraintComponent": "swap or correct {path} of {node}",
    "OrConstraintComponent": "correct {path} of {node}",
}


def _mending(node: str, component: str, path: str) -> str:
    """What to do about a broken constraint of a shape, by its kind."""
    form = _MENDING.get(component, "correct {path} of {node}") if path else "complete {node}"
    return form.format(path=path, node=shortened(node))


def definitions(files: Iterable[Path]) -> dict[str, list[str]]:
    """``file:line`` of every description in some Turtle files, by IRI, in the order of the files.

    A description is a line that begins with the node and ``a kx:``, as all files are written.

    Raises:
        FileUnreadable: a file cannot be read.
    """
    places: dict[str, list[str]] = {}
    for path in files:
        text = read_text(path)
        for match in _DEFINITION.finditer(text):
            iri = match["iri"] or PREFIXES.get(match["prefix"], f"{match['prefix']}:") + match["local"]
            places.setdefault(iri, []).append(f"{path.name}:{text.count(chr(10), 0, match.start()) + 1}")
    return places


def check_definitions(files: Iterable[Path]) -> list[Violation]:
    """Nodes that are described twice: merged, they would have the properties of both.

    Raises:
        FileUnreadable: a file cannot be read.
    """
    solution = "make one description of them, or give one another name"
    return [
        Violation(
            iri,
            f"A node is described once. Here: at {' and at '.join(places)}.",
            "repeated-definition",
            solution=solution,
        )
        for iri, places in sorted(definitions(files).items())
        if len(places) > 1
    ]


def check_queries(data: Graph) -> list[Violation]:
    """What the queries find: faults that SHACL's core cannot express.

    Oxigraph answers them: over the links of the whole graph rdflib takes ten times as long.

    Raises:
        DataMalformed: a query does not parse, or lacks a part of its header.
    """
    from pyoxigraph import QuerySolutions, RdfFormat, Store

    store = Store()
    store.bulk_load(data.serialize(format="nt", encoding="utf-8"), format=RdfFormat.N_TRIPLES)
    found = []
    for path in package_files("queries", ".rq"):
        header = query_header(path)
        rule = header["Principle"][0].upper() + header["Principle"][1:]
        severity: Severity = "warning" if header.get("Severity") == "warning" else "error"
        try:
            solutions = store.query(read_text(path))
        except SyntaxError as error:
            raise DataMalformed(f"{path}: not a SPARQL query ({error})", "mend the query") from error
        assert isinstance(solutions, QuerySolutions)
        for solution in solutions:
            node, detail = solution["node"].value, solution["detail"].value
            message = f"{rule} Here: {_readable(detail)}."
            found.append(Violation(node, message, path.stem, severity=severity, solution=header["Solution"]))
    return sorted(found, key=lambda violation: (violation.check, violation.node, violation.message))


def _readable(text: str) -> str:
    """A text with IRIs by their prefixes."""
    return re.sub(r"(?:urn|http)s?:[^\s,;]+", lambda match: shortened(match[0]), text)


def query_header(path: Path) -> dict[str, str]:
    """Problem, principle and solution that head a query file, and the severity where it is no error.

    Raises:
        DataMalformed: one of them is missing.
    """
    header: dict[str, str] = {}
    for line in read_text(path).splitlines():
        if not line.startswith("#"):
            break
        name, _, text = line.removeprefix("#").strip().partition(": ")
        header[name] = text
    for name in ("Problem", "Principle", "Solution"):
        if not header.get(name):
            raise DataMalformed(f"{path}: no {name.lower()} in its first lines", f"add a line '# {name}: ...'")
    return header
