"""``kx doctor``: what this machine has, what it lacks, and what to do about it."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass

import click

from kgraph.graph import KnowledgeGraph
from kgraph.store import open_store
from kx.cli.output import json_option, print_json, print_table
from kx.errors import EnvironmentLacking, KxError
from kx.paths import Home
from kx.settings import CHROMA, Settings, credentials

_OLDEST_PYTHON = (3, 11)
_PROBE_SECONDS = 10.0


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        name: of the thing.
        state: ``fine``, ``lacking`` (a default command needs it) or ``optional`` (absent, and nothing
            on this machine needs it).
        detail: what was found.
        hint: what to do; empty when fine.
    """

    name: str
    state: str
    detail: str
    hint: str = ""


@click.command()
@click.option("--self-test", is_flag=True, help="Run kernels on this machine's GPU through MLX and check them.")
@json_option
def doctor(as_json: bool, self_test: bool) -> None:
    """Check what this machine has and what it lacks.

    Exits with 3 when something that the default commands need is lacking. With --self-test, MLX's back end for
    this machine runs the tasks' seeds instead, next to metalsim and a float64 oracle; exits with 1 when one fails.
    """
    home = Home.named_by_environment()
    if self_test:
        from kx.cli.self_test import run_self_test

        run_self_test(home, as_json)
        return
    findings = [
        examine_python(),
        examine_compiler(),
        _guarded("embedding model", lambda: examine_model(home)),
        _guarded("packages", examine_packages),
        examine_mlx(),
        *([examine_chip(KnowledgeGraph.open(home))] if _is_mac() else []),
        _guarded("graph store", lambda: examine_graph_store(home)),
        _guarded("vector store", lambda: examine_vector_store(home)),
        _guarded("knowledge graph", lambda: examine_graph(KnowledgeGraph.open(home))),
        examine_home(home),
    ]
    healthy = all(finding.state != "lacking" for finding in findings)
    if as_json:
        print_json({"healthy": healthy, "findings": [asdict(finding) for finding in findings]})
    else:
        print_table(["what", "state", "found", "what to do"], [list(asdict(f).values()) for f in findings])
    if not healthy:
        click.get_current_context().exit(EnvironmentLacking.exit_code)


def _guarded(name: str, examine: Callable[[], Finding]) -> Finding:
    try:
        return examine()
    except KxError as exc:
        return Finding(name, "lacking", exc.message, exc.hint)


def _is_mac() -> bool:
    return sys.platform == "darwin"


def examine_python() -> Finding:
    """The interpreter's version."""
    version = platform.python_version()
    if sys.version_info[:2] < _OLDEST_PYTHON:
        return Finding("python", "lacking", version, "use Python 3.11 or newer")
    return Finding("python", "fine", f"{version} on {platform.system()} {platform.machine()}")


def examine_compiler() -> Finding:
    """The C++ compiler that metalsim uses: the one of the ziglang package."""
    hint = "pip install ziglang; without it nothing can be compiled, checked or searched with metalsim"
    if importlib.util.find_spec("ziglang") is None:
        return Finding("compiler", "lacking", "the package ziglang is not installed", hint)
    answer = _ask([sys.executable, "-m", "ziglang", "version"])
    if answer is None:
        return Finding(
            "compiler", "lacking", "ziglang is installed but does not run", "pip install --force-reinstall ziglang"
        )
    return Finding("compiler", "fine", f"zig {answer}")


def examine_model(home: Home) -> Finding:
    """The embedding model: there, and the default one's weights are the expected ones.

    Raises:
        ModelMissing: it is not.
        DataMalformed: the settings cannot be read.
    """
    from retrieval.embedding import verify_model

    folder, sha256 = verify_model(Settings.load(home).embedding_folder)
    return Finding("embedding model", "fine", f"{folder}, SHA-256 {sha256[:12]}…")


def examine_packages() -> Finding:
    """The packages that retrieval loads when it is used."""
    missing = [name for name in ("sentence_transformers", "chromadb") if importlib.util.find_spec(name) is None]
    if missing:
        names = " ".join(name.replace("_", "-") for name in missing)
        return Finding("packages", "lacking", f"not installed: {names}", f"pip install {names}; kx query needs it")
    return Finding("packages", "fine", "sentence-transformers and chromadb are installed")


def examine_mlx() -> Finding:
    """MLX: needed on a Mac, where it measures; elsewhere only its own back ends need it."""
    answer = _ask([sys.executable, "-c", "import mlx.core as mx; print(mx.__version__, mx.default_device())"])
    if answer is not None:
        return Finding("mlx", "fine", answer)
    state = "lacking" if _is_mac() else "optional"
    hint = "pip install mlx" if _is_mac() else "not needed here: metalsim runs kernels without it"
    return Finding("mlx", state, "mlx.core cannot be imported", hint)


_VARIANT = re.compile(r"-\d+-core$")


def examine_chip(graph: KnowledgeGraph) -> Finding:
    """The chip of this Mac, and whether the graph has its profile.

    The brand names the chip, not how many of its GPU cores are there, so that every variant is told. An M4 is
    no M4 Max.
    """
    brand = _ask(["sysctl", "-n", "machdep.cpu.brand_string"]) or ""
    slug = re.sub(r"\W+", "-", brand.removeprefix("Apple").strip().lower())
    known = [chip.slug for chip in graph.chips() if slug and _VARIANT.sub("", chip.slug) == slug]
    if known:
        return Finding("chip", "fine", f"{brand}: profile {', '.join(known)}")
    return Finding("chip", "optional", f"{brand or 'unknown'}: no profile", "name a near one with --chip")


def examine_graph(graph: KnowledgeGraph) -> Finding:
    """The knowledge graph parses.

    Raises:
        DataMalformed: it does not; names file and line.
    """
    stats = graph.stats()
    return Finding("knowledge graph", "fine", f"{stats.triples} triples, {stats.sources} ingested sources")


def examine_graph_store(home: Home) -> Finding:
    """The graph store that the settings name answers.

    Raises:
        StoreUnreachable: it does not.
        DataMalformed: the settings or the store cannot be read.
    """
    store = open_store(home)
    return Finding("graph store", "fine", f"{store.place}: {len(store.names()) - 1} graphs")


def examine_vector_store(home: Home) -> Finding:
    """The vector store that the settings name: a server answers, a folder need not be there yet.

    Raises:
        StoreUnreachable: the server does not answer.
        DataMalformed: the settings cannot be read.
    """
    from retrieval.chroma import probe_server

    chosen = Settings.load(home).vector_store
    if chosen == CHROMA:
        return Finding("vector store", "fine", f"Chroma in {home.index / 'vectors'}")
    probe_server(chosen, credentials("KX_VECTOR"))
    return Finding("vector store", "fine", f"Chroma server {chosen}")


def examine_home(home: Home) -> Finding:
    """The data folder can be written; nothing is left behind."""
    existing = next(path for path in (home.root, *home.root.parents) if path.exists())
    hint = "make it writable, or set KX_HOME to a folder that is"
    if not existing.is_dir():
        return Finding("KX_HOME", "lacking", f"{existing} is no folder", hint)
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as exc:
        return Finding("KX_HOME", "lacking", f"{existing}: {exc.strerror}", hint)
    where = "set" if os.environ.get("KX_HOME") else "the default"
    return Finding("KX_HOME", "fine", f"{home.root} ({where})")


def _ask(command: list[str]) -> str | None:
    """The last line that ``command`` prints, None when it fails or takes too long."""
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=_PROBE_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    lines = answer.stdout.strip().splitlines()
    return lines[-1] if lines else ""
