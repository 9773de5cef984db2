"""``kx graph copy``: from one graph store to another."""

from __future__ import annotations

from dataclasses import replace

import click

from kgraph.names import CURATED
from kgraph.store import GraphStore, open_store
from kx.cli.output import json_option, note, print_json, print_text, progress
from kx.errors import InputError
from kx.paths import Home
from kx.settings import Settings, checked

_TOGETHER = 50


@click.command()
@click.option(
    "--from", "source", metavar="STORE", help="files, oxigraph or a query URL; the settings' store if absent."
)
@click.option("--to", "target", metavar="STORE", help="files, oxigraph or a query URL; the settings' store if absent.")
@json_option
def copy(source: str | None, target: str | None, as_json: bool) -> None:
    """Copy ingested sources and observations from one graph store to another.

    A graph that the target has too is replaced; others stay. What was copied before an interruption is whole,
    and running the command again goes on. The setting graph_store is not changed.
    """
    home = Home.from_environment()
    settings = Settings.load(home)
    if (source or settings.graph_store) == (target or settings.graph_store):
        raise InputError("the two stores are the same", "kx graph copy --from files --to oxigraph")
    reader, writer = (_open(home, settings, name) for name in (source, target))
    names = [name for name in reader.names() if name != CURATED]
    with progress("copying") as advance:
        for start in range(0, len(names), _TOGETHER):
            part = names[start : start + _TOGETHER]
            with reader.batch():
                graphs = [(name, reader.read(name)) for name in part]
            writer.replace_all(graphs)
            advance(start + len(part), len(names))
    writer.publish()
    if as_json:
        print_json({"from": reader.place, "to": writer.place, "graphs": len(names)})
    else:
        print_text(f"{len(names)} graphs copied from {reader.place} to {writer.place}")
        note("set graph_store in settings.toml, or KX_GRAPH_STORE, to use the copy")


def _open(home: Home, settings: Settings, name: str | None) -> GraphStore:
    if name is None:
        return open_store(home, settings)
    # The update URL of the settings belongs to their store.
    update = settings.graph_update if name == settings.graph_store else ""
    return open_store(home, checked(replace(settings, graph_store=name, graph_update=update)))
