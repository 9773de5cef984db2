"""The knowledge graph as the rest of kx sees it: typed questions, typed answers."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING
from urllib.parse import quote

from kgraph.decode import GraphReader, slug_of
from kgraph.lookup import Spellings, TermAnswer, TokenIndex, named, near_nodes, normalized, ordered
from kgraph.model import (
    Assertion,
    ChipProfile,
    Concept,
    Constraint,
    Evidence,
    KernelTask,
    Mapping,
    Observation,
    Pattern,
    Primitive,
)
from kgraph.names import CURATED, OBSERVATIONS, PREFIXES, RDF_TYPE, schema, skos
from kgraph.records import (
    SourceRecord,
    observation_iri,
    observation_triples,
    read_evidence,
    read_observation,
    source_triples,
)
from kgraph.sizes import GraphStats, measure
from kgraph.sparql import Table, check_query
from kgraph.store import GraphStore, open_store
from kgraph.triples import Triple, TripleIndex, Value
from kx.errors import InputError, UnknownName
from kx.paths import Home

if TYPE_CHECKING:
    from rdflib import Dataset


_FILES = "urn:kx:file:"


class KnowledgeGraph:
    """Curated knowledge, ingested sources and observations, behind typed questions.

    What is read is kept for the life of the object; what this object writes it also sees. Changes of
    other processes are seen by a new one.
    """

    def __init__(self, store: GraphStore) -> None:
        self.store = store
        self._ingested: TripleIndex | None = None
        self._observed: TripleIndex | None = None

    @classmethod
    def open(cls, home: Home) -> KnowledgeGraph:
        """The graph of a data folder, in the store that its settings name; reads nothing else yet.

        Later calls raise as ``GraphStore`` says: DataMalformed, naming file and line, when a Turtle file
        does not parse; StoreUnreachable when the store does not answer.

        Raises:
            DataMalformed: the settings cannot be read.
        """
        return cls(open_store(home))

    # --- curated knowledge ---

    @cached_property
    def reader(self) -> GraphReader:
        """Typed access to the nodes of the curated graph."""
        return GraphReader(TripleIndex(self.store.read(CURATED)))

    @cached_property
    def _concepts(self) -> dict[str, Concept]:
        return {concept.slug: concept for concept in map(self.reader.concept, self._instances("Concept"))}

    def concepts(self) -> tuple[Concept, ...]:
        """Every optimization concept, by slug."""
        return tuple(self._concepts[slug] for slug in sorted(self._concepts))

    def concept(self, slug: str) -> Concept:
        """One concept.

        Raises:
            UnknownName: no concept has this slug; the hint names near ones.
        """
        return named(self._concepts, slug, "concept")

    def concepts_for_class(self, kernel_class: str) -> tuple[Concept, ...]:
        """Concepts that serve a kernel class (``scan``, ``attention`` ...), by slug.

        Raises:
            UnknownName: no such kernel class.
        """
        named(dict.fromkeys(self.kernel_classes(), kernel_class), kernel_class, "kernel class")
        return tuple(concept for concept in self.concepts() if kernel_class in concept.kernel_classes)

    def kernel_classes(self) -> tuple[str, ...]:
        """Slugs of the kernel classes."""
        return tuple(slug_of(iri) for iri in self._instances("KernelClass"))

    def tasks(self) -> tuple[KernelTask, ...]:
        """Kernels that people ask for by name, by slug."""
        return tuple(map(self.reader.task, self._instances("Task")))

    def target(self, name: str) -> KernelTask:
        """The task of that name, or a kernel class taken as one, with every concept that serves it.

        Case, hyphens and underscores do not matter.

        Raises:
            UnknownName: neither a task nor a kernel class has this name; the hint names near ones.
        """
        index = self.reader.index
        known = {task.slug: task for task in self.tasks()}
        for slug in self.kernel_classes():
            iri = PREFIXES["class"] + slug
            serving = tuple(concept.slug for concept in self.concepts_for_class(slug))
            label, definition = index.text(iri, skos("prefLabel")), index.text(iri, skos("definition"))
            known.setdefault(slug, KernelTask(slug, iri, label, definition, slug, serving))
        spelled = {slug.replace("-", "_"): slug for slug in known}
        plain = name.strip().lower().replace("-", "_")
        return named(known, name if name in known else spelled.get(plain, name), "kernel")

    def told_figures(self) -> tuple[str, ...]:
        """Slugs of the figures of a chip that a specification tells."""
        return tuple(
            slug_of(kind)
            for node in self._instances("FigureList")
            for kind in self.reader.index.nodes(node, schema("tells"))
        )

    def primitives(self, platform: str = "") -> tuple[Primitive, ...]:
        """Primitives, of one platform (``cuda``, ``metal``, ``mlx``) or of all."""
        found = map(self.reader.primitive, self._instances("Primitive"))
        return tuple(primitive for primitive in found if platform in ("", primitive.platform))

    def primitive_tokens(self) -> dict[str, str]:
        """CUDA spellings as they stand in source code, with the IRI of the primitive each one shows.

        A PTX token (``cp.async``) also stands for the mnemonics that refine it; ``primitive_of`` knows.
        """
        index = self.reader.index
        tokens: dict[str, str] = {}
        for primitive in self.primitives("cuda"):
            for token in index.texts(primitive.iri, schema("token")):
                tokens.setdefault(token, primitive.iri)
        return tokens

    def primitive_of(self, token: str) -> str:
        """IRI of the CUDA primitive that a source token or a full PTX mnemonic shows, or empty."""
        known = self.primitive_tokens().get(token)
        if known:
            return known
        found = self._tokens.mnemonic(token)
        return found[0].iri if found else ""

    @cached_property
    def _mappings(self) -> tuple[Mapping, ...]:
        return tuple(map(self.reader.mapping, self._instances("Mapping")))

    def mappings(self, concepts: Iterable[str] | None = None) -> tuple[Mapping, ...]:
        """All mappings, or those of primitives that realize one of ``concepts``; best first."""
        if concepts is None:
            return self._mappings
        wanted = set(concepts)
        return ordered(mapping for mapping in self._mappings if wanted & set(mapping.origin.concepts))

    @cached_property
    def _tokens(self) -> TokenIndex:
        texts = self.reader.index.texts
        entries = (
            Spellings(p, texts(p.iri, schema("token")), texts(p.iri, schema("tokenFamily"))) for p in self.primitives()
        )
        return TokenIndex(entries, self.target_platform_slugs)

    @cached_property
    def _concept_labels(self) -> dict[str, str]:
        return {normalized(concept.label): slug for slug, concept in self._concepts.items()}

    def lookup(self, term: str, reverse: bool = False) -> TermAnswer:
        """What a CUDA term is on Metal, or which CUDA primitives lead to a term of Metal or MLX.

        Takes a token as it stands in source code (any case, with arguments or template arguments), a PTX
        mnemonic with modifiers, a wildcard (``__shfl_*``), a name as people write it (``warp reduce``),
        or a concept's slug or label. A term that CUDA and a target share is taken as CUDA's.

        Args:
            reverse: take the term as one of a target platform.
        """
        slug = term.strip().lower()
        if slug in self._concepts and not reverse:
            return TermAnswer(term, self.mappings([slug]), role="concept")
        found = self._tokens.find(term)
        family = ""
        if not found and not reverse and (slug := self._concept_labels.get(normalized(term), "")):
            return TermAnswer(term, self.mappings([slug]), role="concept")
        if not found:
            family, found = self._tokens.family(term)
        if not found:
            found = self._tokens.prefix(term)
        if reverse:
            found = [primitive for primitive in found if primitive.platform in self.target_platform_slugs]
        by_iri = {primitive.iri: rank for rank, primitive in enumerate(found)}
        starting = [] if reverse else [m for m in self._mappings if m.origin.iri in by_iri]
        if starting:
            subjects = tuple(p for p in found if p.platform not in self.target_platform_slugs)
            return TermAnswer(term, ordered(starting, by_iri), role="origin", subjects=subjects, family=family)
        if found:
            leading = [m for m in self._mappings if m.target is not None and m.target.iri in by_iri]
            return TermAnswer(term, ordered(leading, by_iri), role="target", subjects=tuple(found), family=family)
        return TermAnswer(term, (), self._near(term))

    def _near(self, term: str) -> tuple[str, ...]:
        slugs = difflib.get_close_matches(term.strip().lower(), list(self._concepts), n=2, cutoff=0.75)
        return tuple(dict.fromkeys([*self._tokens.near(term), *slugs]))[:4]

    def constraints(self, scopes: Iterable[str] = ()) -> tuple[Constraint, ...]:
        """Limits of the named scopes (``metal``, ``mlx``, ``apple9``, ``m1-max``), or all limits."""
        wanted = set(scopes)
        found = map(self.reader.constraint, self._instances("Constraint"))
        return tuple(constraint for constraint in found if not wanted or constraint.scope in wanted)

    def scopes_of(self, chip: str) -> tuple[str, ...]:
        """Scopes whose limits bind a kernel on a chip: platform, GPU family, chip.

        Raises:
            UnknownName: no such chip.
        """
        profile = self.chip(chip)
        index = self.reader.index
        platforms = [slug_of(node) for node in index.nodes(profile.iri, schema("platform"))]
        return (*platforms, profile.family, profile.slug)

    @cached_property
    def _chips(self) -> dict[str, ChipProfile]:
        return {chip.slug: chip for chip in map(self.reader.chip, self._instances("Chip"))}

    def target_platforms(self, chip: str) -> tuple[str, ...]:
        """Platforms of a chip to which mappings lead: ``metal`` and ``mlx`` on a Mac, none on an NVIDIA GPU.

        Raises:
            UnknownName: no such chip.
        """
        return tuple(scope for scope in self.scopes_of(chip) if scope in self.target_platform_slugs)

    @cached_property
    def target_platform_slugs(self) -> frozenset[str]:
        """Slugs of the platforms to which mappings lead."""
        return frozenset(slug_of(iri) for iri in self._instances("TargetPlatform"))

    def chips(self) -> tuple[ChipProfile, ...]:
        """Every chip, by slug."""
        return tuple(self._chips.values())

    def features(self) -> tuple[str, ...]:
        """Scopes of the limits that say which GPU family and language version bring a feature."""
        return tuple(slug_of(iri) for iri in self._instances("Feature"))

    def chip(self, slug: str) -> ChipProfile:
        """One chip with its quantities.

        Raises:
            UnknownName: no such chip; the hint names near ones.
        """
        return named(self._chips, slug, "chip")

    def target_chip(self, slug: str) -> ChipProfile:
        """One chip of a platform to which mappings lead.

        Raises:
            UnknownName: no such chip; the hint names chips of target platforms only.
            InputError: the chip is one of an origin platform.
        """
        known = {name: chip for name, chip in self._chips.items() if self.target_platforms(name)}
        if slug in self._chips and slug not in known:
            label = self._chips[slug].label
            raise InputError(f"{label} ({slug}) is no target of mappings", f"name one of {', '.join(sorted(known))}")
        return named(known, slug, "chip")

    def patterns(self, concepts: Iterable[str] | None = None) -> tuple[Pattern, ...]:
        """Patterns of some concepts, those that share most concepts first; or all patterns."""
        found = list(map(self.reader.pattern, self._instances("Pattern")))
        if concepts is None:
            return tuple(found)
        wanted = set(concepts)
        shared = [(len(wanted & set(pattern.concepts)), pattern) for pattern in found]
        return tuple(pattern for n, pattern in sorted(shared, key=lambda pair: (-pair[0], pair[1].iri)) if n)

    def assertions(self, kernel_class: str = "", task: str = "") -> tuple[Assertion, ...]:
        """Properties that kernels of a class keep, or all of them.

        Args:
            kernel_class: slug; empty for all.
            task: slug of a task of that class: properties that belong to other tasks only are left out.
        """
        found = map(self.reader.assertion, self._instances("Assertion"))
        return tuple(
            assertion
            for assertion in found
            if (not kernel_class or kernel_class in assertion.kernel_classes)
            and (not task or not assertion.tasks or task in assertion.tasks)
        )

    def describe(self, iri: str) -> dict[str, list[Value]]:
        """Everything the graph says about a node, by property; prefixed names (``concept:...``) work too.

        Raises:
            UnknownName: no such node.
        """
        prefix, _, local = iri.partition(":")
        full = PREFIXES[prefix] + local if prefix in PREFIXES else iri
        graph = ":".join(full.split(":")[:4])  # of an ingested source's node: urn:kx:file:<hash>[:kernel:<n>]
        source = TripleIndex(self.store.read(graph) if graph.startswith(_FILES) else ())
        indexes = (self.reader.index, source, self._observations_index)
        for index in indexes:
            if full in index:
                return index.properties(full)
        nodes = {node for index in indexes for node in index.subjects()}
        near = ", ".join(near_nodes(full, nodes))
        hint = f"did you mean {near}" if near else "kx graph stats names the classes; kx map finds primitives"
        raise UnknownName(f"no node {iri} in the graph", hint)

    def _instances(self, class_name: str) -> list[str]:
        return self.reader.index.instances(schema(class_name))

    # --- ingested sources ---

    @property
    def _sources_index(self) -> TripleIndex:
        if self._ingested is None:
            with self.store.batch():
                names = self.store.names(_FILES)
                self._ingested = TripleIndex(triple for name in names for triple in self.store.read(name))
        return self._ingested

    def replace_source(self, record: SourceRecord) -> None:
        """Make ``record`` all that is known of its file.

        A primitive may be named by its IRI or by a token that shows it.

        Raises:
            UnknownName: it names a concept or a primitive that the graph lacks.
        """
        self.replace_sources([record])

    def replace_sources(self, records: Iterable[SourceRecord]) -> None:
        """As ``replace_source`` for several files, each of them replaced whole; nothing is written on an error.

        Raises:
            UnknownName: one names a concept or a primitive that the graph lacks.
        """
        self.store.replace_all([(record.iri, self._checked_triples(record)) for record in records])
        self._ingested = None

    def _checked_triples(self, record: SourceRecord) -> list[Triple]:
        for evidence in record.evidence:
            self.concept(evidence.concept)
        primitives = tuple((self._primitive_iri(name), lines) for name, lines in record.primitives)
        return source_triples(replace(record, primitives=primitives))

    def _primitive_iri(self, name: str) -> str:
        iri = name if name in self.reader.index else self.primitive_of(name)
        if not iri:
            raise UnknownName(f"no primitive named {name!r}", "kx map finds primitives")
        return iri

    def remove_source(self, iri: str) -> bool:
        """Forget an ingested file; whether it was known."""
        self._ingested = None
        return self.store.remove(iri)

    def sources(self, *, lenient: bool = False) -> dict[str, tuple[str, str]]:
        """Ingested files with (sha256, detector version).

        Args:
            lenient: leave out files whose graph is damaged, as if they had not been ingested.
        """
        index = self._identities(("path", "sha256", "detectorVersion"), lenient=lenient)
        return {
            path: (index.text(iri, schema("sha256")), index.text(f"{iri}:reading", schema("detectorVersion")))
            for iri, path in _paths(index)
        }

    def source_roots(self, *, lenient: bool = False) -> dict[str, str]:
        """Ingested files with the absolute folder that their name counts from; empty for an absolute name.

        Args:
            lenient: as for `sources`.
        """
        index = self._identities(("path", "root"), lenient=lenient)
        return {path: index.text(iri, schema("root"), "") for iri, path in _paths(index)}

    def _identities(self, properties: Iterable[str], *, lenient: bool) -> TripleIndex:
        found = (self.store.find(_FILES, schema(name), lenient=lenient) for name in properties)
        return TripleIndex(triple for triples in found for triple in triples)

    def evidence(self, concept: str | None = None) -> tuple[Evidence, ...]:
        """Concepts seen in ingested sources, surest first; of one concept or of all.

        Raises:
            UnknownName: no such concept.
        """
        index = self._sources_index
        if concept is None:
            nodes = index.instances(schema("Evidence"))
        else:
            nodes = index.pointing(schema("concept"), self.concept(concept).iri)
        found = [read_evidence(index, node) for node in nodes]
        return tuple(sorted(found, key=lambda e: (-e.confidence, e.file, e.first_line, e.concept)))

    # --- observations ---

    @property
    def _observations_index(self) -> TripleIndex:
        if self._observed is None:
            with self.store.batch():
                names = self.store.names(OBSERVATIONS)
                self._observed = TripleIndex(triple for name in names for triple in self.store.read(name))
        return self._observed

    def add_observation(self, observation: Observation) -> None:
        """Record an observation; one of the same run, node, concept and target is replaced.

        Raises:
            UnknownName: no such concept.
        """
        self.concept(observation.concept)
        iri, added = observation_iri(observation), observation_triples(observation)
        name = OBSERVATIONS + quote(observation.run, safe="")
        self.store.update(name, lambda old: [triple for triple in old if triple[0] != iri] + added)
        self._observed = None

    def observations(
        self,
        concept: str | None = None,
        task: str | None = None,
        chip: str | None = None,
        backend: str | None = None,
    ) -> tuple[Observation, ...]:
        """Observations that match every given slug, in the order of run and node."""
        index = self._observations_index
        found = [read_observation(index, node) for node in index.instances(schema("Observation"))]
        wanted = {"concept": concept, "task": task, "chip": chip, "backend": backend}
        return tuple(
            observation
            for observation in sorted(found, key=lambda o: (o.run, o.node, o.concept, o.backend))
            if all(value in (None, getattr(observation, name)) for name, value in wanted.items())
        )

    # --- the graph as a whole ---

    def triple_count(self) -> int:
        """Triples in all named graphs together."""
        return len(self.reader.index) + self.store.count(_FILES) + self.store.count(OBSERVATIONS)

    def stats(self) -> GraphStats:
        """Sizes, with the number of nodes of every class."""
        classes = self.store.find(_FILES, RDF_TYPE) + self.store.find(OBSERVATIONS, RDF_TYPE)
        return measure(self.reader.index, TripleIndex(classes), self.triple_count())

    def dataset(self) -> Dataset:
        """All named graphs as an rdflib dataset; its default graph is their union."""
        return self.store.dataset()

    def sparql(self, query: str) -> Table | str:
        """Answer of a query over all graphs: a table, or Turtle for CONSTRUCT and DESCRIBE.

        Raises:
            InputError: the query does not parse, or uses an unknown prefix.
        """
        try:
            return self.store.query(query)
        except InputError:
            check_query(query)  # tells the place better than engines do
            raise

    def select(self, query: str) -> Table:
        """Rows of a SPARQL SELECT or ASK over all graphs; ``sparql`` takes the other forms too.

        Raises:
            InputError: the query does not parse, or is neither SELECT nor ASK.
        """
        answer = self.sparql(query)
        if not isinstance(answer, Table):
            raise InputError("only SELECT and ASK give a table", "kx graph sparql prints the triples of the others")
        return answer


def _paths(index: TripleIndex) -> list[tuple[str, str]]:
    """Sources with their file's name, by name."""
    return sorted(((s, index.text(s, schema("path"))) for s in index.subjects() if index.texts(s, schema("path"))),
                  key=lambda pair: pair[1])  # fmt: skip
