from __future__ import annotations

import subprocess
import sys

import pytest

from kgraph.load import load_triples, parse_turtle, read_text
from kgraph.triples import Node, TripleIndex
from kx.errors import DataMalformed, FileUnreadable, UnknownName

GOOD = """@prefix kx: <urn:kx:schema#> .
<urn:kx:concept:a> kx:difficulty 2 ; kx:family "memory" ; kx:enables <urn:kx:concept:b> .
"""


def test_a_malformed_file_is_named_with_its_line(tmp_path):
    bad = tmp_path / "bad.ttl"
    bad.write_text("@prefix kx: <urn:kx:schema#> .\n\n<urn:kx:a> kx:b ; ; kx:c \n  nonsense here .\n", encoding="utf-8")
    with pytest.raises(DataMalformed, match=r"bad\.ttl:[34]: "):
        parse_turtle([bad])


def test_an_unknown_prefix_is_malformed(tmp_path):
    bad = tmp_path / "bad.ttl"
    bad.write_text("<urn:kx:a> nope:b 1 .\n", encoding="utf-8")
    with pytest.raises(DataMalformed, match=r"bad\.ttl:1: "):
        parse_turtle([bad])


def test_a_file_that_is_no_text_is_unreadable(tmp_path):
    path = tmp_path / "x.ttl"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FileUnreadable, match=r"x\.ttl"):
        read_text(path)
    with pytest.raises(FileUnreadable, match="absent"):
        load_triples([tmp_path / "absent.ttl"], tmp_path)


def test_values_keep_their_kind(tmp_path):
    path = tmp_path / "good.ttl"
    path.write_text(GOOD, encoding="utf-8")
    index = TripleIndex(load_triples([path], tmp_path / "cache"))
    subject, schema = "urn:kx:concept:a", "urn:kx:schema#"
    assert index.number(subject, schema + "difficulty") == 2
    assert index.text(subject, schema + "family") == "memory"
    assert index.node(subject, schema + "enables") == Node("urn:kx:concept:b")
    with pytest.raises(DataMalformed, match="absent"):
        index.text(subject, schema + "absent")


def test_the_cache_follows_the_contents(tmp_path):
    path, cache = tmp_path / "good.ttl", tmp_path / "cache"
    path.write_text(GOOD, encoding="utf-8")
    first = load_triples([path], cache)
    assert load_triples([path], cache) == first
    path.write_text(GOOD.replace(" 2 ", " 3 "), encoding="utf-8")
    assert load_triples([path], cache) != first


def test_a_damaged_cache_costs_time_only(tmp_path):
    path, cache = tmp_path / "good.ttl", tmp_path / "cache"
    path.write_text(GOOD, encoding="utf-8")
    first = load_triples([path], cache)
    for cached in (cache / "triples").iterdir():
        cached.write_text("[[1", encoding="utf-8")
    assert load_triples([path], cache) == first


def test_a_cache_that_cannot_be_written_is_no_fault(tmp_path):
    path, cache = tmp_path / "good.ttl", tmp_path / "cache"
    path.write_text(GOOD, encoding="utf-8")
    cache.write_text("a file where the folder should be", encoding="utf-8")
    assert load_triples([path], cache)


def test_a_cached_lookup_imports_no_rdf_library(tmp_path):
    code = (
        "import sys\nfrom pathlib import Path\nfrom kgraph.graph import KnowledgeGraph\nfrom kx.paths import Home\n"
        f"graph = KnowledgeGraph.open(Home(Path({str(tmp_path)!r})))\n"
        "assert graph.lookup('__shared__').mappings\n"
        "print('rdflib' in sys.modules, 'pyshacl' in sys.modules)\n"
    )
    outputs = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    assert outputs[1].split() == ["False", "False"]


def test_unknown_names_say_what_is_known(curated):
    with pytest.raises(UnknownName, match="did you mean m4-max"):
        curated.chip("m4-maxx")
