"""Turtle in: parse files, name file and line of what does not parse, and keep parsed triples in a cache."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from kgraph.names import PREFIXES, XSD
from kgraph.triples import Node, Triple, Value, decode, encode
from kx.errors import DataMalformed, FileUnreadable
from kx.paths import write_atomically

if TYPE_CHECKING:
    from rdflib import Graph, Literal
    from rdflib.term import Node as RdfTerm

CACHE_FORMAT = "1"
"""Part of every cache key; changes when the cached form changes."""


def package_files(folder: str, suffix: str) -> list[Path]:
    """Data files of this package in ``folder``, by name."""
    root = Path(str(resources.files("kgraph") / folder))
    return sorted(path for path in root.glob(f"*{suffix}"))


def curated_files() -> list[Path]:
    """The schema and the curated knowledge."""
    return [*package_files("ontology", ".ttl"), *package_files("knowledge", ".ttl")]


def read_text(path: Path) -> str:
    """Text of a UTF-8 file.

    Raises:
        FileUnreadable: it is absent, not permitted, or not UTF-8.
    """
    try:
        return path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FileUnreadable(f"{path}: cannot be read as UTF-8 text ({error})") from error


def parse_turtle(files: Sequence[Path]) -> Graph:
    """One rdflib graph of several Turtle files.

    Raises:
        DataMalformed: a file does not parse; names the file and the line.
        FileUnreadable: a file cannot be read.
    """
    from rdflib import Graph
    from rdflib.plugins.parsers.notation3 import BadSyntax

    graph = Graph()
    for prefix, namespace in PREFIXES.items():
        graph.bind(prefix, namespace)
    for path in files:
        text = read_text(path)
        try:
            graph.parse(data=text, format="turtle")
        except BadSyntax as error:
            line = getattr(error, "lines", 0) + 1
            reason = str(getattr(error, "_why", "not valid Turtle"))
            raise DataMalformed(f"{path}:{line}: {reason}", "mend the Turtle at that line") from error
        except (AssertionError, ValueError, IndexError) as error:  # what rdflib raises on a torn file
            line = _line_of(str(error), text)
            raise DataMalformed(f"{path}:{line}: not valid Turtle", "mend it, or ingest the file again") from error
    return graph


def _line_of(message: str, text: str) -> int:
    """Line that an rdflib message quotes (after its ``^``), else the last one."""
    quoted = message.rpartition("^")[2]
    place = text.find(quoted) if quoted and quoted != message else -1
    return text.count("\n", 0, place if place >= 0 else len(text)) + 1


def plain_triples(graph: Graph) -> list[Triple]:
    """The triples of an rdflib graph as plain values, sorted."""
    rows = [(str(s), str(p), plain_value(o)) for s, p, o in graph]
    return sorted(rows, key=lambda row: (row[0], row[1], str(row[2])))


def plain_value(term: RdfTerm) -> Value:
    """A plain value for an RDF term: ``Node`` for IRIs, numbers for numbers, text otherwise."""
    from rdflib import Literal

    if not isinstance(term, Literal):
        return Node(str(term))
    value = term.value
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    if isinstance(value, float) or type(value).__name__ == "Decimal":
        return float(value)
    return str(term)


def to_graph(triples: Iterable[Triple]) -> Graph:
    """An rdflib graph of plain triples."""
    from rdflib import Graph, URIRef

    graph = Graph()
    for prefix, namespace in PREFIXES.items():
        graph.bind(prefix, namespace)
    for subject, predicate, value in triples:
        term = URIRef(value) if isinstance(value, Node) else _literal(value)
        graph.add((URIRef(subject), URIRef(predicate), term))
    return graph


def _literal(value: Value) -> Literal:
    from rdflib import Literal, URIRef

    if isinstance(value, float):
        return Literal(repr(value), datatype=URIRef(XSD + "double"))
    return Literal(value)


def content_key(files: Iterable[Path]) -> str:
    """Hash of the contents of files, in the given order.

    Raises:
        FileUnreadable: a file cannot be read.
    """
    digest = hashlib.sha256(CACHE_FORMAT.encode())
    for path in files:
        try:
            digest.update(hashlib.sha256(path.read_bytes()).digest())
        except OSError as error:
            raise FileUnreadable(f"{path}: cannot be read ({error})") from error
    return digest.hexdigest()[:32]


def load_triples(files: Sequence[Path], cache: Path) -> list[Triple]:
    """Triples of several Turtle files, from the cache when the same contents were parsed before.

    A cache that cannot be written or read costs time, never the answer.

    Args:
        files: Turtle files, merged.
        cache: folder of the cached forms; created when needed.

    Raises:
        DataMalformed, FileUnreadable: as ``parse_turtle``.
    """
    cached = cache / "triples" / f"{content_key(files)}.json"
    with contextlib.suppress(OSError, ValueError):
        return decode(cached.read_text(encoding="utf-8"))
    triples = plain_triples(parse_turtle(files))
    with contextlib.suppress(OSError):
        write_atomically(cached, encode(triples))
    return triples


def cache_triples(path: Path, triples: Iterable[Triple], cache: Path) -> None:
    """Keep what a file that was just written says, so that nobody need parse it.

    Args:
        path: the Turtle file.
        triples: all that it holds.
        cache: folder of the cached forms; one that cannot be written costs time later.
    """
    rows = sorted(set(triples), key=lambda row: (row[0], row[1], str(row[2])))
    with contextlib.suppress(OSError, FileUnreadable):
        write_atomically(cache / "triples" / f"{content_key([path])}.json", encode(rows))
