"""From an answer as somebody wrote it down to the entries of the index that give it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.retrieval.questions import Question
from kgraph.graph import KnowledgeGraph
from kgraph.names import PREFIXES, schema, skos
from retrieval.model import Entry


class AnswerResolver:
    """Takes IRIs, prefixed names, slugs, labels and tokens of source code.

    Args:
        graph: what the names mean.
        entries: what can be found.
    """

    def __init__(self, graph: KnowledgeGraph, entries: Iterable[Entry]) -> None:
        self._graph = graph
        self._ids = {entry.id for entry in entries}
        self._names: dict[str, set[str]] = defaultdict(set)
        index = graph.reader.index
        for entry in entries:
            self._names[_plain(entry.title)].add(entry.id)
            self._names[_plain(entry.id.rpartition(":")[2])].add(entry.id)
            for label in (*index.texts(entry.id, skos("prefLabel")), *index.texts(entry.id, skos("altLabel"))):
                self._names[_plain(label)].add(entry.id)

    def resolve(self, answer: str) -> frozenset[str]:
        """Ids of the entries that give ``answer``; empty when nothing does.

        In this order: an IRI, whole, prefixed (``map:x``) or without ``urn:kx:`` (``mapping:x``), a figure's being
        given by its chip; a slug or a label, of all nodes that have it; a token, which its mappings and primitives
        give.
        """
        text = answer.strip()
        prefix, _, local = text.partition(":")
        for iri in (text, PREFIXES.get(prefix, "urn:kx:none:") + local, f"urn:kx:{text}"):
            if iri in self._ids:
                return frozenset({iri})
            if chips := self._ids.intersection(self._graph.reader.index.pointing(schema("hasQuantity"), iri)):
                return frozenset(chips)
        found = set(self._names.get(_plain(text), ()))
        if any(":primitive:" not in iri for iri in found):
            return frozenset(found)
        for mapping in self._graph.lookup(text).mappings:
            found |= {mapping.iri, mapping.origin.iri}
            if mapping.target is not None:
                found.add(mapping.target.iri)
        return frozenset(found & self._ids)


def read_any_questions(path: Path) -> tuple[Question, ...]:
    """Questions of other people: a JSON list, or JSON lines, of objects with ``text`` and ``answers``.

    ``question`` or ``query`` may stand for ``text``, ``answer``, ``nodes`` or ``expected`` for ``answers``, one
    answer for a list; ``id``, ``style`` and ``topic`` may lack.

    Raises:
        ValueError: the file is no JSON, or an object has no text or no answer; names its place.
    """
    content = path.read_text(encoding="utf-8")
    if content.lstrip().startswith("["):
        records = json.loads(content)
    else:
        records = [json.loads(line) for line in content.splitlines() if line.strip()]
    return tuple(_question(record, number, path) for number, record in enumerate(records, start=1))


def _question(record: dict[str, Any], number: int, path: Path) -> Question:
    text = next((record[key] for key in ("text", "question", "query") if record.get(key)), "")
    answers = next((record[key] for key in ("answers", "answer", "nodes", "expected") if record.get(key)), ())
    if not text or not answers:
        raise ValueError(f"{path}, question {number}: a question has text and answers")
    listed = (answers,) if isinstance(answers, str) else tuple(map(str, answers))
    name = str(record.get("id") or f"question {number}")
    return Question(name, record.get("style", ""), record.get("topic", ""), text, listed)


def _plain(name: str) -> str:
    return " ".join(name.lower().replace("-", " ").split())
