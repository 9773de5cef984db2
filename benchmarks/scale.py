"""Load time, memory, latencies and size on disk of the stores at scale, on synthetic sources.

    python -m benchmarks.scale graph --store files|oxigraph|URL [--triples 1000000] [--out DIR]
    python -m benchmarks.scale vectors --store chroma|URL [--entries 100000] [--out DIR]

Everything is made from a seed: sources of the shape that ``kx ingest`` writes (file, reading, kernels,
evidence, uses of primitives), mappings of made-up primitives, and unit vectors in clusters. Each run takes a
fresh data folder and a process of its own, so that its memory is its own. Times are wall-clock; the raw samples
are written as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kgraph.graph import KnowledgeGraph
from kgraph.model import Evidence
from kgraph.names import PREFIXES, RDF_TYPE, file_iri, schema, skos
from kgraph.records import SourceRecord, source_triples
from kgraph.store import open_store
from kgraph.triples import Node, Triple
from kx.paths import Home
from kx.settings import Settings
from retrieval.chroma import store_factory
from retrieval.exact import ExactSearch
from retrieval.index import Index
from retrieval.model import Entry

SEED = 20261201
WIDTH = 384
MAPPINGS = 5_000
ENTRIES_PER_SOURCE = 100
MAPPING_QUERY = """SELECT ?mapping ?to ?advice {{ ?from kx:token "{token}" . ?mapping kx:from ?from ;
    kx:to ?target ; kx:advice ?advice . ?target skos:prefLabel ?to }}"""


def synthetic_source(number: int, concepts: list[str], primitives: list[str]) -> SourceRecord:
    """A source with 3 to 8 kernels, 4 to 12 concepts seen in them, and 6 to 20 primitives at some lines each."""
    draw = random.Random(f"{SEED}:{number}")
    file = f"src/module{number % 97}/kernel{number}.cu"
    kernels = tuple((f"kernel_{number}_{k}", 20 + 60 * k) for k in range(draw.randint(3, 8)))
    evidence = []
    for _ in range(draw.randint(4, 12)):
        name, first = draw.choice(kernels)
        line = first + draw.randint(1, 40)
        concept = draw.choice(concepts)
        why = f"{concept.replace('-', ' ')} by its shape at line {line}, seen in {name}"
        evidence.append(Evidence(concept, name, file, line, line + 4, f"{concept}@3", draw.randint(50, 99) / 100, why))
    used = draw.sample(primitives, draw.randint(6, 20))
    return SourceRecord(
        iri=file_iri(file),
        file=file,
        sha256=f"{number:064x}",
        detector_version="bench",
        kernels=kernels,
        evidence=tuple(evidence),
        primitives=tuple((iri, tuple(sorted(draw.sample(range(1, 600), draw.randint(1, 5))))) for iri in used),
        root="/sources",
    )


def synthetic_mappings(start: int, count: int) -> list[Triple]:
    """Made-up primitives of CUDA and Metal, and a mapping from each to its like."""
    triples: list[Triple] = []
    for number in range(start, start + count):
        origin, target = f"urn:kx:primitive:cuda:made-{number}", f"urn:kx:primitive:metal:made-{number}"
        mapping = f"urn:kx:mapping:made-{number}"
        for iri, side in ((origin, "cuda"), (target, "metal")):
            triples += [
                (iri, RDF_TYPE, Node(schema("Primitive"))),
                (iri, skos("prefLabel"), f"{side}_made_{number}"),
                (iri, schema("token"), f"__{side}_made_{number}"),
                (iri, schema("platform"), Node(PREFIXES["platform"] + side)),
            ]
        triples += [
            (mapping, RDF_TYPE, Node(schema("Mapping"))),
            (mapping, schema("from"), Node(origin)),
            (mapping, schema("to"), Node(target)),
            (mapping, schema("advice"), f"call metal_made_{number} instead"),
            (mapping, schema("confidence"), 0.5),
        ]
    return triples


def graphs(triples: int, graph: KnowledgeGraph) -> Iterator[tuple[str, list[Triple]]]:
    """Named graphs of about ``triples`` triples in all."""
    concepts = [concept.slug for concept in graph.concepts()]
    primitives = [primitive.iri for primitive in graph.primitives("cuda")]
    made = 0
    for start in range(0, MAPPINGS, 250):
        content = synthetic_mappings(start, 250)
        made += len(content)
        yield f"urn:kx:graph:made:{start}", content
    number = 0
    while made < triples:
        record = synthetic_source(number, concepts, primitives)
        content = source_triples(record)
        made, number = made + len(content), number + 1
        yield record.iri, content


def timed(action: Callable[[], Any], repeats: int) -> list[float]:
    """Milliseconds of each run."""
    samples = []
    for _ in range(repeats):
        start = time.perf_counter()
        action()
        samples.append(round(1000 * (time.perf_counter() - start), 4))
    return samples


def peak_mb() -> float:
    """Largest resident size of this process so far, in MB."""
    per_mb = 1e6 if sys.platform == "darwin" else 1e3  # bytes there, kilobytes on Linux
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / per_mb, 1)


def disk_mb(folder: Path) -> float:
    """Size of all files below a folder, in MB."""
    return round(sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6, 1)


def run_command(home: Home, store: str, *arguments: str) -> None:
    """A kx command as a process of its own."""
    environment = {**os.environ, "KX_HOME": str(home.root), "KX_GRAPH_STORE": store, "HF_HUB_OFFLINE": "1"}
    program = "from kx.cli import main; main()"
    subprocess.run([sys.executable, "-c", program, *arguments], env=environment, check=True, capture_output=True)


def measure_graph(home: Home, store: str, triples: int) -> dict[str, Any]:
    """Fill a graph store and ask it."""
    settings = Settings(graph_store=store, graph_timeout_s="600")
    opened = open_store(home, settings)
    graph = KnowledgeGraph(opened)
    graph.lookup("__ldg")
    found: dict[str, Any] = {"memory_before_mb": peak_mb()}
    contents: list[tuple[str, list[Triple]]] = list(graphs(triples, graph))
    found |= {"graphs": len(contents), "triples": sum(len(content) for _, content in contents)}
    found["memory_with_data_mb"] = peak_mb()
    found["load_s"] = round(timed(lambda: opened.replace_all(contents), 1)[0] / 1000, 2)
    found["memory_after_load_mb"] = peak_mb()
    sources = [name for name, _ in contents if name.startswith("urn:kx:file:")]
    one = dict(contents)[sources[17]]
    contents.clear()
    print(f"loaded {found['triples']} triples in {found['load_s']} s", file=sys.stderr)

    tokens = sorted(graph.primitive_tokens())
    draw = random.Random(SEED)
    found["sources_cold_ms"] = timed(graph.sources, 1)
    found["sources_ms"] = timed(graph.sources, 3)
    found["lookup_ms"] = [
        sample for token in draw.sample(tokens, 100) for sample in timed(lambda t=token: graph.lookup(t), 1)
    ]
    fresh = lambda: KnowledgeGraph(open_store(home, settings)).lookup(draw.choice(tokens))  # noqa: E731
    found["open_and_lookup_ms"] = timed(fresh, 5)
    found["map_process_ms"] = timed(lambda: run_command(home, store, "map", "__shfl_xor_sync"), 5)
    query = lambda: opened.query(MAPPING_QUERY.format(token=f"__cuda_made_{draw.randrange(MAPPINGS)}"))  # noqa: E731
    found["sparql_mapping_ms"] = timed(query, 2 if store == "files" else 20)
    found["read_one_source_ms"] = timed(lambda: opened.read(draw.choice(sources)), 20)
    found["update_one_source_ms"] = timed(lambda: opened.replace(sources[17], one), 10)
    found["sources_after_update_ms"] = timed(graph.sources, 1)
    found["stats_ms"] = timed(lambda: KnowledgeGraph(open_store(home, settings)).stats(), 1)
    found["memory_before_evidence_mb"] = peak_mb()
    found["evidence_first_ms"] = timed(lambda: graph.evidence("block-scan"), 1)
    found["evidence_again_ms"] = timed(lambda: graph.evidence("block-scan"), 3)
    found["memory_after_evidence_mb"] = peak_mb()
    found["disk_graph_mb"], found["disk_cache_mb"] = disk_mb(home.graph), disk_mb(home.cache)
    return found


class ClusterEmbedder:
    """Unit vectors around 400 centres, by the number that a text ends in."""

    name = "synthetic-384"

    def __init__(self) -> None:
        self._centres = np.random.default_rng(SEED).normal(size=(400, WIDTH))

    def embed(self, texts: list[str]) -> npt.NDArray[np.float32]:
        """Vectors of shape [len(texts), 384], float32, of norm 1."""
        rows = []
        for text in texts:
            draw = np.random.default_rng([SEED, int(text.rsplit(" ", 1)[1])])
            rows.append(self._centres[draw.integers(400)] + 0.7 * draw.normal(size=WIDTH))
        made = np.array(rows, dtype=np.float32).reshape(len(texts), WIDTH)
        return made / np.linalg.norm(made, axis=1, keepdims=True)


def synthetic_entries(source: int) -> list[Entry]:
    """Entries of one ingested source."""
    first = source * ENTRIES_PER_SOURCE
    iri = file_iri(f"src/kernel{source}.cu")
    return [
        Entry(f"{iri}:evidence:{n}", "evidence", f"evidence {n}", f"seen in kernel {n}", iri, ("block-scan",))
        for n in range(first, first + ENTRIES_PER_SOURCE)
    ]


def measure_vectors(home: Home, store: str, entries: int) -> dict[str, Any]:
    """Fill an index and ask its vector store for neighbours."""
    embedder = ClusterEmbedder()
    index = Index.open(home, lambda: embedder, store_factory(store), exact_limit=0)
    count = entries // ENTRIES_PER_SOURCE
    found: dict[str, Any] = {"entries": count * ENTRIES_PER_SOURCE, "memory_before_mb": peak_mb()}
    write = lambda: [index.replace_source(file_iri(f"src/kernel{s}.cu"), synthetic_entries(s)) for s in range(count)]  # noqa: E731
    found["write_entries_s"] = round(timed(write, 1)[0] / 1000, 2)
    found["fill_vectors_s"] = round(timed(index.embed_pending, 1)[0] / 1000, 2)
    found["memory_after_fill_mb"] = peak_mb()
    print(f"filled {entries} vectors in {found['fill_vectors_s']} s", file=sys.stderr)
    questions = [f"question {10_000_000 + n}" for n in range(50)]
    answers: list[list[tuple[str, float]]] = []
    found["nearest_60_ms"] = [s for q in questions for s in timed(lambda q=q: answers.append(index.nearest(q, 60)), 1)]
    ids = [entry.id for source in range(count) for entry in synthetic_entries(source)]
    vectors = embedder.embed([f"kernel {n}" for n in range(len(ids))])
    exact = ExactSearch(ids, vectors)
    expected = [exact.nearest(embedder.embed([question])[0], 60) for question in questions]
    shared = [len({k for k, _ in a} & {k for k, _ in e}) for a, e in zip(answers, expected, strict=True)]
    found["recall_at_60"] = round(sum(shared) / (60 * len(questions)), 4)
    found["exact_60_ms"] = timed(lambda: exact.nearest(vectors[7], 60), 10)

    def change_one() -> None:
        index.replace_source(file_iri("src/kernel3.cu"), synthetic_entries(count + 1)[:0])
        index.replace_source(file_iri("src/kernel3.cu"), synthetic_entries(3))
        index.embed_pending()

    found["update_one_source_ms"] = timed(change_one, 3)
    found["entries_read_ms"] = timed(index.entries, 2)
    index.close()
    found["disk_index_mb"] = disk_mb(home.index)
    return found


def main() -> None:
    """Measure one store and write what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["graph", "vectors"])
    parser.add_argument("--store", required=True, help="files, oxigraph, chroma, or a URL")
    parser.add_argument("--triples", type=int, default=1_000_000)
    parser.add_argument("--entries", type=int, default=100_000)
    parser.add_argument("--out", type=Path, help="folder for the JSON file")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="kx-scale-"))
    try:
        if options.what == "graph":
            found = measure_graph(Home(folder), options.store, options.triples)
        else:
            found = measure_vectors(Home(folder), options.store, options.entries)
    finally:
        shutil.rmtree(folder)
    kind = "server" if "://" in options.store else options.store
    packages = ("rdflib", "pyoxigraph", "chromadb", "numpy")
    record = {
        "what": options.what,
        "store": kind,
        "seed": SEED,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors",
        "versions": {name: version(name) for name in packages},
        **found,
    }
    text = json.dumps(record, indent=1)
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / f"{options.what}-{kind}.json").write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
