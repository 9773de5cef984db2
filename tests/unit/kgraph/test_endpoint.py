"""What goes wrong between kx and a SPARQL endpoint, over real connections."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from kgraph.store import GraphStore, open_store
from kx.errors import DataMalformed, KxError, StoreUnreachable
from kx.paths import Home
from kx.settings import Settings
from tests.contract.appending import little_knowledge
from tests.servers import Respond, free_port, guarded, oxigraph_server, send, serving

A, P = "urn:kx:file:a", "urn:kx:test:p"


@pytest.fixture(autouse=True, scope="module")
def few_curated_files() -> Iterator[None]:
    with little_knowledge():
        yield


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with oxigraph_server(tmp_path_factory.mktemp("server")) as address:
        yield address


def store_at(address: str, folder: Path, timeout_s: str = "10") -> GraphStore:
    return open_store(Home(folder), Settings(graph_store=f"{address}/query", graph_timeout_s=timeout_s))


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"KX_GRAPH_TOKEN": "sesame"}, "Bearer sesame"),
        ({"KX_GRAPH_USER": "kx", "KX_GRAPH_PASSWORD": "ü:x"}, "Basic a3g6w7w6eA=="),
    ],
    ids=["token", "password"],
)
def test_credentials_of_the_environment_are_sent(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], expected: str
) -> None:
    with serving(guarded(server, expected)) as address:
        with pytest.raises(StoreUnreachable, match=r"refuses to be read .HTTP 401: who are you") as caught:
            store_at(address, tmp_path).read(A)
        assert "KX_GRAPH_TOKEN" in caught.value.hint
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        assert store_at(address, tmp_path).read("urn:kx:file:nothing") == []


def test_half_of_the_credentials_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KX_GRAPH_USER", "kx")
    with pytest.raises(DataMalformed, match="KX_GRAPH_PASSWORD is not set"):
        store_at("http://127.0.0.1:1", tmp_path)


def test_an_endpoint_that_is_down_is_told(tmp_path: Path) -> None:
    with pytest.raises(StoreUnreachable, match="cannot be reached: Connection refused") as caught:
        store_at(f"http://127.0.0.1:{free_port()}", tmp_path).read(A)
    assert "graph_store" in caught.value.hint


def answer_slowly(handler: BaseHTTPRequestHandler, _: bytes) -> None:
    time.sleep(0.6)
    send(handler, 200, b"{}")


def drop(handler: BaseHTTPRequestHandler, _: bytes) -> None:
    handler.connection.shutdown(socket.SHUT_RDWR)
    handler.close_connection = True


def always(code: int, body: bytes, **headers: str) -> Respond:
    return lambda handler, _: send(handler, code, body, **headers)


FAULTS: list[tuple[str, Respond, type[KxError], str, str]] = [
    ("a page", always(200, b"<!doctype html>\n<p>"), DataMalformed, "does not answer as a SPARQL", "graph_store"),
    ("other JSON", always(200, json.dumps({"head": 1}).encode()), DataMalformed, "does not answer as", "graph_store"),
    ("no such path", always(404, b""), DataMalformed, "takes no SPARQL query .HTTP 404", "graph_store"),
    ("moved", always(302, b"", Location="https://else/"), DataMalformed, "redirects to https://else/", "graph_store"),
    ("forbidden", always(403, b"no"), StoreUnreachable, "refuses to be read", "KX_GRAPH_TOKEN"),
    ("broken", always(500, b"out of\nmemory"), StoreUnreachable, "failed .HTTP 500: out of", "log"),
    ("hung", answer_slowly, StoreUnreachable, "did not answer within 0.2 s", "graph_timeout_s"),
    ("dropped", drop, StoreUnreachable, "dropped the connection", "graph_store"),
]


@pytest.mark.parametrize(
    ("respond", "kind", "what", "hint"), [row[1:] for row in FAULTS], ids=[row[0] for row in FAULTS]
)
def test_what_answers_wrongly_is_told(
    tmp_path: Path, respond: Respond, kind: type[KxError], what: str, hint: str
) -> None:
    with serving(respond) as address, pytest.raises(kind, match=what) as caught:
        store_at(address, tmp_path, timeout_s="0.2").read(A)
    assert hint in caught.value.hint


def failing_updates(server: str, fault: Respond, *, arrives: bool) -> Respond:
    """Passes on queries; a request that writes graph A is answered by ``fault``, after it arrived or without."""
    through = guarded(server, "Bearer t")

    def respond(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        if handler.path == "/update" and A.encode() in body:
            if arrives:
                through(handler, body)
            fault(handler, body)
        else:
            through(handler, body)

    return respond


@pytest.mark.parametrize("write", ["replace", "update"])
def test_an_endpoint_that_drops_in_an_update_leaves_the_old_graph_and_says_what_to_do(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: str
) -> None:
    direct = store_at(server, tmp_path)
    direct.replace(A, [("urn:kx:test:s", P, 1)])
    monkeypatch.setenv("KX_GRAPH_TOKEN", "t")
    new = [("urn:kx:test:s", P, 2)]
    changes: dict[str, Callable[[GraphStore], None]] = {
        "replace": lambda store: store.replace(A, new),
        "update": lambda store: store.update(A, lambda _: new),
    }
    with serving(failing_updates(server, drop, arrives=False)) as address:
        with pytest.raises(StoreUnreachable, match="whether the last change arrived is not known") as caught:
            changes[write](store_at(address, tmp_path))
        assert "run the command again" in caught.value.hint
    assert direct.read(A) == [("urn:kx:test:s", P, 1)]
    changes[write](direct)
    assert direct.read(A) == new


def test_an_update_that_others_overtake_is_made_again(server: str, tmp_path: Path) -> None:
    one, other = store_at(server, tmp_path), store_at(server, tmp_path)
    one.replace(A, [])
    calls = []

    def change(old: list) -> list:
        calls.append(len(old))
        if len(calls) == 1:
            other.update(A, lambda found: [*found, ("urn:kx:test:s", P, 1)])
        return [*old, ("urn:kx:test:s", P, 2)]

    one.update(A, change)
    assert calls == [0, 1]
    assert one.read(A) == [("urn:kx:test:s", P, 1), ("urn:kx:test:s", P, 2)]


@pytest.mark.parametrize("options", [(), ("--union-default-graph",)])
def test_queries_see_all_graphs_however_the_server_is_set_up(tmp_path: Path, options: tuple[str, ...]) -> None:
    with oxigraph_server(tmp_path, *options) as address:
        store_at(address, tmp_path).replace(A, [("urn:kx:test:s", P, 1)])
        answer = store_at(address, tmp_path).query("ASK { <urn:kx:test:s> <urn:kx:test:p> 1 . ?c a kx:Concept }")
    assert answer.rows == (("true",),)
